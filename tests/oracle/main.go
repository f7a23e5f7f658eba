// Command oracle answers what an API server of the pinned release would say to a write.
//
// It reads one JSON question a line from standard input and writes one JSON answer a line to
// standard output, in order:
//
//	{"now": TIME, "kind": "Eviction"|"EvictionRequest"|"Pod", "operation": "CREATE"|"UPDATE",
//	 "subresource": ""|"status", "object": {…}, "oldObject": {…}|null}
//
//	{"allowed": true}
//	{"allowed": false, "code": 422, "reason": "Invalid", "causes": [{"type", "field", "message"}…]}
//	{"panic": "…"}    the reference itself crashed
//	{"error": "…"}    the question could not be put to the reference
//
// Of a pod only spec.evictionResponders is judged.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"
	clocktesting "k8s.io/utils/clock/testing"

	"usher.dev/tests/oracle/reference"
)

type question struct {
	Now         time.Time       `json:"now"`
	Kind        string          `json:"kind"`
	Operation   string          `json:"operation"`
	Subresource string          `json:"subresource"`
	Object      json.RawMessage `json:"object"`
	OldObject   json.RawMessage `json:"oldObject"`
}

type answer struct {
	Allowed *bool   `json:"allowed,omitempty"`
	Code    int32   `json:"code,omitempty"`
	Reason  string  `json:"reason,omitempty"`
	Causes  []cause `json:"causes,omitempty"`
	Panic   string  `json:"panic,omitempty"`
	Error   string  `json:"error,omitempty"`
}

type cause struct {
	Type    string `json:"type"`
	Field   string `json:"field"`
	Message string `json:"message"`
}

// oracle holds the only clock there is: each question sets it before it is judged.
type oracle struct {
	clock *clocktesting.FakePassiveClock
	judge *reference.Judge
}

func main() {
	// The strategies log every shadowed check; nobody reads that here.
	klog.SetLogger(logr.Discard())
	if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "oracle:", err)
		os.Exit(1)
	}
}

func run(in io.Reader, out io.Writer) error {
	if err := reference.EnableFeatures(); err != nil {
		return err
	}
	clock := clocktesting.NewFakePassiveClock(time.Time{})
	seer := &oracle{clock: clock, judge: reference.NewJudge(clock)}
	lines := bufio.NewReaderSize(in, 1<<20)
	answers := json.NewEncoder(out)
	answers.SetEscapeHTML(false)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			// One write per answer: whoever asks one question at a time must not wait for a buffer.
			if err := answers.Encode(seer.answer(line)); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (o *oracle) answer(line []byte) (result answer) {
	defer func() {
		if reason := recover(); reason != nil {
			result = answer{Panic: fmt.Sprint(reason)}
		}
	}()
	var asked question
	if err := json.Unmarshal(line, &asked); err != nil {
		return answer{Error: err.Error()}
	}
	if asked.Now.IsZero() {
		return answer{Error: "now: missing"}
	}
	o.clock.SetTime(asked.Now)
	return describe(o.judge.Verdict(reference.Question{
		Kind:        asked.Kind,
		Operation:   asked.Operation,
		Subresource: asked.Subresource,
		Object:      asked.Object,
		OldObject:   asked.OldObject,
	}))
}

func describe(verdict error) answer {
	allowed := verdict == nil
	if allowed {
		return answer{Allowed: &allowed}
	}
	var refused apierrors.APIStatus
	if !errors.As(verdict, &refused) {
		return answer{Error: verdict.Error()}
	}
	status := refused.Status()
	result := answer{Allowed: &allowed, Code: status.Code, Reason: string(status.Reason)}
	if status.Details != nil {
		for _, c := range status.Details.Causes {
			result.Causes = append(result.Causes, cause{Type: string(c.Type), Field: c.Field, Message: c.Message})
		}
	}
	return result
}
