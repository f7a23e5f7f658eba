// Command kube-apiserver is the API server of the oldest supported Kubernetes release, built from its Go
// modules because the test bed has no container engine to pull it from.
package main

import (
	"os"

	"k8s.io/component-base/cli"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
)

func main() {
	os.Exit(cli.Run(app.NewAPIServerCommand()))
}
