// monitors reads one document, in JSON, of a kind that Prometheus's operator adds to Kubernetes, and refuses a field
// that the kind does not have: a cluster drops such a field without a word.
package main

import (
	"fmt"
	"io"
	"os"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"sigs.k8s.io/json"
)

func main() {
	kinds := map[string]any{"PodMonitor": &monitoring.PodMonitor{}, "PrometheusRule": &monitoring.PrometheusRule{}}
	kind, known := kinds[os.Args[1]]
	if !known {
		fmt.Fprintln(os.Stderr, "unknown kind", os.Args[1])
		os.Exit(2)
	}
	text, err := io.ReadAll(os.Stdin)
	faults := []error{err}
	if err == nil {
		var fault error
		faults, fault = json.UnmarshalStrict(text, kind)
		faults = append(faults, fault)
	}
	code := 0
	for _, fault := range faults {
		if fault != nil {
			fmt.Fprintln(os.Stderr, fault)
			code = 1
		}
	}
	os.Exit(code)
}
