package workers

import (
	"errors"
	"log/slog"
)

// Clear ends the workers that an ended daemon left running in a runtime directory, and removes their cgroups. Their
// guests' calls return errors. The caller holds the directory's lock, so that no daemon serves it meanwhile.
func Clear(dir string, log *slog.Logger) error {
	w := New(Options{RuntimeDir: dir, Private: true, Log: log}) // Private: the cgroups must be gone at the end
	left, err := w.Survivors()
	for _, s := range left {
		s.End()
		s.Files.Close()
		err = errors.Join(err, s.Conn.Close())
		w.Strike(s.ID)
	}
	w.Confine()
	w.removeCgroups(adoptTime)
	return err
}
