package engine

import "testing"

// The words that a domain polls are added up over its live workers; a worker that writes nonsense counts within bounds.
func TestPolls(t *testing.T) {
	m, e := newPages(t, Options{})
	one, two, third := register(t, m, e), register(t, m, e), register(t, m, e)
	want := func(w *Worker, n, words, workers int) {
		t.Helper()
		if gotWords, gotWorkers := w.Polls(n); gotWords != words || gotWorkers != workers {
			t.Errorf("Polls(%d) = %d words, %d workers; want %d, %d", n, gotWords, gotWorkers, words, workers)
		}
	}
	want(one, 3, 3, 1)
	want(two, 5, 8, 2)
	want(one, 0, 5, 1)
	third.user().polls.Store(-7)
	want(one, 1, 6, 2)
	third.user().polls.Store(1 << 62)
	want(one, 1, 6+maxPolls, 3)
	third.Close()
	want(one, 1, 6, 2)
	fourth := register(t, m, e) // in the third one's place
	want(fourth, 0, 6, 2)
	one.Close()
	two.Close()
	fourth.Close()
}
