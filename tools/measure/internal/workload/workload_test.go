package workload

import "testing"

// BenchmarkEngine runs each workload on one core, for profiles.
func BenchmarkEngine(b *testing.B) {
	for _, name := range Names {
		b.Run(name, func(b *testing.B) {
			w, err := New(name)
			if err != nil {
				b.Fatal(err)
			}
			defer w.Close()
			for b.Loop() {
				w.Clear()
				if err := w.Run(1); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
