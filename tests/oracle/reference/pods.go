package reference

import (
	"errors"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/kubernetes/pkg/apis/core"
)

const (
	respondersField      = "spec.evictionResponders"
	schedulingGroupField = "spec.schedulingGroup"
)

// aboutResponders drops every cause of a pod's verdict that isn't about its eviction responders,
// and allows what has no cause left.
func aboutResponders(verdict error, object, old runtime.Object) error {
	var status *apierrors.StatusError
	if !errors.As(verdict, &status) || status.ErrStatus.Details == nil {
		return verdict
	}
	changed := old != nil && !equality.Semantic.DeepEqual(responders(object), responders(old))
	var causes []metav1.StatusCause
	for _, cause := range status.ErrStatus.Details.Causes {
		if isAboutResponders(cause, object, changed) {
			causes = append(causes, cause)
		}
	}
	if len(causes) == 0 {
		return nil
	}
	status.ErrStatus.Details.Causes = causes
	return status
}

func isAboutResponders(cause metav1.StatusCause, object runtime.Object, changed bool) bool {
	rest, found := strings.CutPrefix(cause.Field, respondersField)
	switch {
	case found:
		return rest == "" || rest[0] == '[' || rest[0] == '.'
	case cause.Field == schedulingGroupField:
		// The exclusion of the two fields is reported at the other one.
		return cause.Type == metav1.CauseType("FieldValueForbidden") && len(responders(object)) > 0
	case cause.Field == "spec":
		// A pod's immutable fields are compared as a whole, so a changed list is reported at spec.
		return cause.Type == metav1.CauseType("FieldValueForbidden") && changed
	default:
		return false
	}
}

func responders(object runtime.Object) []core.EvictionResponder {
	return object.(*core.Pod).Spec.EvictionResponders
}
