// Package kubernetes makes and tests what is given to a cluster. From the boards
// and rules in dashboards/ it makes a kustomization with a ConfigMap for each
// board and a PrometheusRule for each file of rules; its tests build every
// kustomization as kubectl would and decode each object strictly into the types
// of the API that it is for.
//
//	go -C tools/kubernetes run ./generate
//
// brings the generated files up to date.
package kubernetes
