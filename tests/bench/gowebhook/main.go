// Command gowebhook is the benchmarks' peer: a validating webhook as one would write it in Go, on
// controller-runtime and the API server's own strategies.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager/signals"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"usher.dev/tests/oracle/reference"
)

func main() {
	port := flag.Int("port", 9443, "port to serve HTTPS on")
	certDir := flag.String("cert-dir", "", "directory with tls.crt and tls.key")
	flag.Parse()
	// No logging: the benchmark measures verdicts, and its other side logs nothing per request either.
	log.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	if err := serve(signals.SetupSignalHandler(), *port, *certDir); err != nil {
		fmt.Fprintln(os.Stderr, "gowebhook:", err)
		os.Exit(1)
	}
}

func serve(ctx context.Context, port int, certDir string) error {
	if err := reference.EnableFeatures(); err != nil {
		return err
	}
	server := webhook.NewServer(webhook.Options{Port: port, CertDir: certDir})
	server.Register("/validate", &webhook.Admission{Handler: &validator{judge: reference.NewJudge(clock.RealClock{})}})
	return server.Start(ctx)
}

// validator answers with the same code, reason and causes as the API server's built-in validation.
type validator struct{ judge *reference.Judge }

func (v *validator) Handle(_ context.Context, request admission.Request) admission.Response {
	if request.Operation != admissionv1.Create && request.Operation != admissionv1.Update {
		return admission.Allowed("")
	}
	verdict := v.judge.Verdict(reference.Question{
		Kind:        request.Kind.Kind,
		Operation:   string(request.Operation),
		Subresource: request.SubResource,
		Object:      request.Object.Raw,
		OldObject:   request.OldObject.Raw,
	})
	if verdict == nil {
		return admission.Allowed("")
	}
	var refused apierrors.APIStatus
	if !errors.As(verdict, &refused) {
		return admission.Errored(http.StatusBadRequest, verdict)
	}
	return denied(refused.Status())
}

func denied(status metav1.Status) admission.Response {
	return admission.Response{AdmissionResponse: admissionv1.AdmissionResponse{Result: &status}}
}
