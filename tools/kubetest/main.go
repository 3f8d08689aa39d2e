// Kubetest is kube-apiserver and kube-controller-manager in one executable, for the tests.
//
// The first argument, or the name it is called by, says which of the two it is.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
)

var programs = map[string]func() *cobra.Command{
	"kube-apiserver":          apiserver.NewAPIServerCommand,
	"kube-controller-manager": controllers.NewControllerManagerCommand,
}

func main() {
	name := filepath.Base(os.Args[0])
	if programs[name] == nil && len(os.Args) > 1 {
		name = os.Args[1]
		os.Args = append(os.Args[:1], os.Args[2:]...)
	}
	program := programs[name]
	if program == nil {
		fmt.Fprintln(os.Stderr, "usage: kubetest kube-apiserver|kube-controller-manager [flags]")
		os.Exit(2)
	}
	os.Exit(cli.Run(program()))
}
