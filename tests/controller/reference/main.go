// Command reference runs the two eviction controllers of Kubernetes 1.38.0-beta.0 and nothing else:
// the peer that the controller's benchmark compares with.
package main

import (
	"context"
	"flag"
	"log"
	"os/signal"
	"sync"
	"syscall"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/kubernetes/pkg/controller/evictionrequest"
	"k8s.io/kubernetes/pkg/controller/imperativeevictionresponder"
)

// As many workers as the controller manager gives to each of the two by default.
const workers = 5

type controller interface {
	Run(ctx context.Context, workers int)
}

func main() {
	kubeconfig := flag.String("kubeconfig", "", "file that says where the API server is")
	userAgent := flag.String("user-agent", "reference-controllers", "name in the audit log")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()

	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		log.Fatal(err)
	}
	config.UserAgent = *userAgent
	// The encoding that the controller manager uses for built-in types.
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.QPS = -1 // no limit of its own: the API server's alone
	if err := run(ctx, config); err != nil {
		log.Fatal(err)
	}
}

// run returns when ctx is done and both controllers have ended.
func run(ctx context.Context, config *rest.Config) error {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	shared := informers.NewSharedInformerFactory(client, 0)
	controllers, err := newControllers(ctx, client, shared)
	if err != nil {
		return err
	}
	shared.Start(ctx.Done())
	var running sync.WaitGroup
	for _, each := range controllers {
		running.Go(func() { each.Run(ctx, workers) })
	}
	running.Wait()
	return nil
}

func newControllers(
	ctx context.Context, client kubernetes.Interface, shared informers.SharedInformerFactory,
) ([]controller, error) {
	lifecycle, pods := shared.Lifecycle().V1alpha1(), shared.Core().V1().Pods()
	requests, err := evictionrequest.NewController(
		ctx, "evictionrequest-controller",
		lifecycle.Evictions(), lifecycle.EvictionRequests(), pods, client,
	)
	if err != nil {
		return nil, err
	}
	responder, err := imperativeevictionresponder.NewController(
		ctx, "imperative-eviction-responder-controller", lifecycle.Evictions(), pods, client,
	)
	if err != nil {
		return nil, err
	}
	return []controller{requests, responder}, nil
}
