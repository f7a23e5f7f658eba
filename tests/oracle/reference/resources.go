package reference

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	_ "k8s.io/kubernetes/pkg/apis/core/install"      // the codecs need the types registered
	_ "k8s.io/kubernetes/pkg/apis/lifecycle/install" // the codecs need the types registered
	"k8s.io/kubernetes/pkg/registry/core/pod"
	"k8s.io/kubernetes/pkg/registry/lifecycle/eviction"
	"k8s.io/kubernetes/pkg/registry/lifecycle/evictionrequest"
	"k8s.io/utils/clock"
)

// strategy is what a main resource needs to be created and updated.
type strategy interface {
	rest.RESTCreateStrategy
	rest.RESTUpdateStrategy
}

// resource is one supported kind and the strategies that judge it.
type resource struct {
	kind    schema.GroupVersionKind
	plural  string
	decoder runtime.Decoder
	main    strategy
	updates map[string]rest.RESTUpdateStrategy // by subresource
	// relevant narrows a verdict to the part of the object that is asked about.
	relevant func(verdict error, object, old runtime.Object) error
}

func supportedResources(clock clock.PassiveClock) map[string]resource {
	everything := func(verdict error, _, _ runtime.Object) error { return verdict }
	lifecycle := lifecyclev1alpha1.SchemeGroupVersion
	evictions := eviction.NewStrategy(clock)
	requests := evictionrequest.NewStrategy()
	return map[string]resource{
		"Eviction": newResource(lifecycle.WithKind("Eviction"), "evictions",
			evictions, eviction.NewStatusStrategy(evictions), everything),
		"EvictionRequest": newResource(lifecycle.WithKind("EvictionRequest"), "evictionrequests",
			requests, evictionrequest.NewStatusStrategy(requests), everything),
		"Pod": newResource(corev1.SchemeGroupVersion.WithKind("Pod"), "pods",
			pod.Strategy, nil, aboutResponders),
	}
}

func newResource(
	kind schema.GroupVersionKind,
	plural string,
	main strategy,
	status rest.RESTUpdateStrategy,
	relevant func(error, runtime.Object, runtime.Object) error,
) resource {
	updates := map[string]rest.RESTUpdateStrategy{"": main}
	if status != nil {
		updates["status"] = status
	}
	return resource{
		kind:     kind,
		plural:   plural,
		decoder:  jsonDecoder(kind.Group),
		main:     main,
		updates:  updates,
		relevant: relevant,
	}
}

// jsonDecoder decodes JSON leniently, sets defaults and converts to the internal version, which is
// what an API server does before a strategy sees the object.
func jsonDecoder(group string) runtime.Decoder {
	codecs := legacyscheme.Codecs
	info, ok := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), runtime.ContentTypeJSON)
	if !ok {
		panic("the legacy scheme has no JSON serializer")
	}
	return codecs.DecoderToVersion(info.Serializer, schema.GroupVersion{Group: group, Version: runtime.APIVersionInternal})
}

func (r resource) decode(raw []byte) (runtime.Object, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return nil, errors.New("missing")
	}
	object, found, err := r.decoder.Decode(raw, &r.kind, nil)
	if err != nil {
		return nil, err
	}
	if *found != r.kind {
		return nil, fmt.Errorf("is a %s, not a %s", found, r.kind)
	}
	return object, nil
}
