package xenstore_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"pegasus/xenstore"
)

// With a server that hangs, before or within an answer, every call ends by its context; with one that trickles it
// succeeds, and with one that hangs up within an answer it fails. Close doesn't wait for any of them.
func TestServersThatHang(t *testing.T) {
	calls := map[string]func(context.Context, *xenstore.Client) error{
		"read":  func(ctx context.Context, c *xenstore.Client) error { _, err := c.Read(ctx, "/a"); return err },
		"list":  func(ctx context.Context, c *xenstore.Client) error { _, err := c.List(ctx, "/a"); return err },
		"perms": func(ctx context.Context, c *xenstore.Client) error { _, err := c.Perms(ctx, "/a"); return err },
		"write": func(ctx context.Context, c *xenstore.Client) error { return c.Write(ctx, "/a", []byte("b")) },
		"watch": func(ctx context.Context, c *xenstore.Client) error { _, err := c.Watch(ctx, "/a"); return err },
		"update": func(ctx context.Context, c *xenstore.Client) error {
			return c.Update(ctx, func(tx *xenstore.Tx) error { return tx.Write(ctx, "/a", []byte("b")) })
		},
	}
	const soon = 100 * time.Millisecond
	bodies := map[string]string{"read": "value", "list": "one\x00", "perms": "n0\x00", "write": "OK\x00", "watch": "OK\x00", "update": "5\x00"}
	for name, call := range calls {
		for way, c := range map[string]struct {
			answer func(s *scripted, text []byte)
			limit  time.Duration
			want   error
		}{
			"hangs":          {func(*scripted, []byte) {}, soon, context.DeadlineExceeded},
			"hangs within":   {func(s *scripted, text []byte) { s.Write(text[:len(text)-1]) }, soon, context.DeadlineExceeded},
			"hangs at once":  {func(s *scripted, text []byte) { s.Write(text[:1]) }, soon, context.DeadlineExceeded},
			"hangs up":       {func(s *scripted, text []byte) { s.Write(text[:len(text)-1]); s.Close() }, time.Minute, xenstore.ErrLost},
			"hangs up first": {func(s *scripted, _ []byte) { s.Close() }, time.Minute, xenstore.ErrLost},
			"trickles": {func(s *scripted, text []byte) {
				for i := range text {
					s.Write(text[i : i+1])
					time.Sleep(time.Millisecond)
				}
			}, time.Minute, nil},
		} {
			if name == "update" && c.want == nil {
				continue // takes several answers
			}
			t.Run(name+" "+way, func(t *testing.T) {
				t.Parallel()
				client, s := play(t)
				ctx, cancel := context.WithTimeout(t.Context(), c.limit)
				defer cancel()
				outcome := later(func() (bool, error) { return true, call(ctx, client) })
				q := s.asked()
				q.Body = []byte(bodies[name])
				c.answer(s, q.Append(nil))
				if _, err := outcome(); !errors.Is(err, c.want) {
					t.Errorf("%v, want %v", err, c.want)
				}
				closed := make(chan struct{})
				go func() { client.Close(); close(closed) }()
				select {
				case <-closed:
				case <-time.After(20 * time.Second):
					t.Error("Close waits for the server")
				}
			})
		}
	}
}
