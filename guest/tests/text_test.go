package tests

import (
	"strings"
	"testing"

	"pegasus/cuda"
)

// Kernel output is printed where the program synchronises, and a host that announces wrong lengths makes the program
// print neither for ever nor beyond the buffer.
func TestTexts(t *testing.T) {
	type said struct {
		cuda.TextReadResult
		text string
	}
	long := strings.Repeat("x", 65536)
	for name, c := range map[string]struct {
		answers []said // to successive requests; the last one also to all later ones
		want    string
	}{
		"nothing": {[]said{{}}, "begin\nmiddle\nend\n"},
		"pieces": {[]said{
			{cuda.TextReadResult{Length: 4, Left: 3, File: 1}, "one "},
			{cuda.TextReadResult{Length: 4, Left: 0, File: 1}, "two\n"},
			{cuda.TextReadResult{Length: 5, Left: 0, File: 1}, "last\n"},
		}, "begin\none two\nmiddle\nlast\nend\n"},
		"too much":         {[]said{{cuda.TextReadResult{Length: 65537, Left: 9, File: 1}, ""}}, "begin\nmiddle\nend\n"},
		"far too much":     {[]said{{cuda.TextReadResult{Length: 1 << 63, Left: 1 << 63, File: 1}, ""}}, "begin\nmiddle\nend\n"},
		"nothing for ever": {[]said{{cuda.TextReadResult{Left: 1, File: 1}, ""}}, "begin\nmiddle\nend\n"},
		"without end":      {[]said{{cuda.TextReadResult{Length: 65536, Left: 1, File: 7}, long}}, "begin\n" + long + long + "middle\n" + long + long + "end\n"},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, b *build) {
				asked, answers := 0, c.answers
				h := (&host{before: func(g *guest, call cuda.Call, payload []byte) verdict {
					if call.Op == cuda.OpContextSynchronize {
						g.ch.TextWaits(call.Context, true)
					}
					var a cuda.TextReadArgs
					if call.Op != cuda.OpTextRead || !a.Decode(payload) {
						return proceed
					}
					if a.Flags != 0 { // all work has ended
						g.ch.TextWaits(call.Context, true)
						g.ch.Reply(call.ReplySlot, call.ReplyTag, 0, (&cuda.TextReadResult{}).Append(nil))
						return ignore
					}
					answer := answers[min(asked, len(answers)-1)]
					asked++
					if to, ok := g.ch.Arena(a.ArenaOffset, a.Capacity); ok {
						copy(to, answer.text)
					}
					g.ch.TextWaits(call.Context, answer.Left > 0)
					g.ch.Reply(call.ReplySlot, call.ReplyTag, 0, answer.Append(nil))
					return ignore
				}}).start(t)
				if got := runs(t, run{build: b, program: "texts", socket: h.path}); got != c.want {
					t.Errorf("printed %d bytes %.100q, want %d bytes %.100q", len(got), got, len(c.want), c.want)
				}
			})
		})
	}
}

// A thread that blocks while it prints, or is cancelled, delays no other thread.
func TestTextOfStuckThread(t *testing.T) {
	each(t, func(t *testing.T, b *build) {
		h := (&host{before: func(g *guest, call cuda.Call, payload []byte) verdict {
			if call.Op == cuda.OpContextSynchronize {
				g.ch.TextWaits(call.Context, true)
			}
			if call.Op != cuda.OpTextRead {
				return proceed
			}
			g.ch.TextWaits(call.Context, false)
			g.ch.Reply(call.ReplySlot, call.ReplyTag, 0, (&cuda.TextReadResult{Length: 65536, File: 1}).Append(nil))
			return ignore
		}}).start(t)
		runs(t, run{build: b, program: "stuck", socket: h.path})
	})
}
