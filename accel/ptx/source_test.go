package ptx

import "testing"

// Code of line 0 is the compiler's own, from no line of the source.
func TestSource(t *testing.T) {
	m, err := Parse([]byte(`.version 7.0
.target sm_70
.address_size 64
.visible .entry k()
{
	.reg .b32 %r<3>;
	.loc 1 10 0
	mov.b32 %r1, 1;
	.loc 1 0 0
	mov.b32 %r2, 2;
	.loc 1 12 3
	ret;
}
.file 1 "main.cu"
`))
	if err != nil {
		t.Fatal(err)
	}
	k := m.Kernel("k")
	for line, want := range map[int]string{6: "", 8: "main.cu:10", 10: "", 12: "main.cu:12"} {
		if got := k.Source(line); got != want {
			t.Errorf("line %d: got %q, want %q", line, got, want)
		}
	}
}
