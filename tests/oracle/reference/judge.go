// Package reference asks the API server's own registry strategies for a verdict, without an API
// server around them. The oracle and the benchmark's Go webhook both stand on it.
package reference

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/utils/clock"
)

// Operations that carry an object to judge.
const (
	Create = "CREATE"
	Update = "UPDATE"
)

// systemUID stands where the API server would generate a random one, so that equal questions get
// equal answers.
const systemUID types.UID = "00000000-0000-4000-8000-000000000000"

// Question is one write, as an API server sees it after decoding the request.
type Question struct {
	Kind        string
	Operation   string
	Subresource string
	Object      []byte
	OldObject   []byte
}

// BadQuestion says that a question could not be put to the strategies at all.
type BadQuestion struct{ cause error }

func (e *BadQuestion) Error() string { return e.cause.Error() }
func (e *BadQuestion) Unwrap() error { return e.cause }

func badQuestion(format string, args ...any) error {
	return &BadQuestion{cause: fmt.Errorf(format, args...)}
}

// EnableFeatures switches on the gates that the judged fields sit behind. Without GenericWorkload a
// pod's schedulingGroup is dropped before the rule about it is reached.
func EnableFeatures() error {
	return utilfeature.DefaultMutableFeatureGate.Set("EvictionRequestAPI=true,GenericWorkload=true")
}

// Judge answers questions at the instant its clock shows.
type Judge struct {
	clock     clock.PassiveClock
	resources map[string]resource // by kind
}

// NewJudge returns a judge over all supported kinds. It is safe for concurrent use as far as the
// clock is.
func NewJudge(clock clock.PassiveClock) *Judge {
	return &Judge{clock: clock, resources: supportedResources(clock)}
}

// Verdict returns nil when the write is allowed, an API status error when it is refused, and a
// *BadQuestion when it can't be judged. It panics where the strategies panic.
func (j *Judge) Verdict(question Question) error {
	target, ok := j.resources[question.Kind]
	if !ok {
		return badQuestion("kind %q is not supported", question.Kind)
	}
	object, err := target.decode(question.Object)
	if err != nil {
		return badQuestion("object: %w", err)
	}
	switch {
	case question.Operation == Create && question.Subresource == "":
		return j.create(target, object)
	case question.Operation == Update:
		old, err := target.decode(question.OldObject)
		if err != nil {
			return badQuestion("oldObject: %w", err)
		}
		return j.update(target, question.Subresource, object, old)
	default:
		return badQuestion("operation %q on subresource %q is not supported", question.Operation, question.Subresource)
	}
}

func (j *Judge) create(target resource, object runtime.Object) error {
	metadata, err := meta.Accessor(object)
	if err != nil {
		return badQuestion("object: %w", err)
	}
	// What the generic store does before it hands an object to the strategy.
	metadata.SetDeletionTimestamp(nil)
	metadata.SetDeletionGracePeriodSeconds(nil)
	metadata.SetCreationTimestamp(metav1.NewTime(j.clock.Now()))
	metadata.SetUID(systemUID)
	if metadata.GetName() == "" && metadata.GetGenerateName() != "" {
		metadata.SetName(target.main.GenerateName(metadata.GetGenerateName()))
	}
	if metadata.GetNamespace() == "" {
		metadata.SetNamespace(metav1.NamespaceDefault)
	}
	verdict := rest.BeforeCreate(target.main, target.context(metadata.GetNamespace(), ""), object)
	return target.relevant(verdict, object, nil)
}

func (j *Judge) update(target resource, subresource string, object, old runtime.Object) error {
	strategy, ok := target.updates[subresource]
	if !ok {
		return badQuestion("subresource %q is not supported", subresource)
	}
	metadata, err := meta.Accessor(old)
	if err != nil {
		return badQuestion("oldObject: %w", err)
	}
	if metadata.GetNamespace() == "" {
		metadata.SetNamespace(metav1.NamespaceDefault)
	}
	verdict := rest.BeforeUpdate(strategy, target.context(metadata.GetNamespace(), subresource), object, old)
	return target.relevant(verdict, object, old)
}

// context carries what declarative validation looks up: the request's version and subresource.
func (r resource) context(namespace, subresource string) context.Context {
	ctx := genericrequest.WithNamespace(context.Background(), namespace)
	return genericrequest.WithRequestInfo(ctx, &genericrequest.RequestInfo{
		IsResourceRequest: true,
		APIGroup:          r.kind.Group,
		APIVersion:        r.kind.Version,
		Namespace:         namespace,
		Resource:          r.plural,
		Subresource:       subresource,
	})
}
