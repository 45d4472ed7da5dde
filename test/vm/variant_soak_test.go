//go:build soak

package vm

import "testing"

func TestSoakVariants(t *testing.T) { tryVariants(t, variants) }
