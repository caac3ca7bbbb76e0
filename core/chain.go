package core

import "fmt"

// Layer wraps a resource in a decorator. Returning the upstream itself is the
// way to build nothing.
type Layer func(upstream Resource) (Resource, error)

// With is the layer that build makes, such as With(budget.New, budget.Config{Limit: 1 << 30}).
func With[R Resource, C any](build func(upstream Resource, cfg C) (R, error), cfg C) Layer {
	return func(upstream Resource) (Resource, error) { return build(upstream, cfg) }
}

// Chain wraps base in layers, from the device outwards: the first layer is
// the innermost. Nil layers are skipped. The order has meaning: a layer sees
// what the layers outside it ask for.
func Chain(base Resource, layers ...Layer) (Resource, error) {
	if base == nil {
		return nil, missing("Chain", "base", "give the resource to build on")
	}
	r := base
	for _, layer := range layers {
		if layer == nil {
			continue
		}
		next, err := layer(r)
		if err != nil {
			return nil, fmt.Errorf("wrapping %v: %w", r, err)
		}
		r = next
	}
	return r, nil
}

// Base returns the innermost resource of r.
func Base(r Resource) Resource {
	for {
		up := r.Unwrap()
		if up == nil {
			return r
		}
		r = up
	}
}
