package test

import "testing"

// Properties of memory pools, each in a process of its own.
func TestPools(t *testing.T) {
	t.Parallel()
	h := startHost(t, oneDomain)
	pools := program(t, "pools")
	for _, part := range []string{"reuse", "dependencies", "returns", "ends", "wrong", "crowded", "limits", "trimmed", "rushed", "raced", "replaced"} {
		t.Run(part, func(t *testing.T) { succeed(t, h.guest("one", pools, part)) })
	}
}
