package placement

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var rewrite = flag.Bool("rewrite", false, "write the answers into the conversations")

// TestConversations executes the files in testdata. A line beginning with > is the queue's answer to the line above.
//
//	queue [round-robin]
//	add NAME compute N memory N in N out N [max N]
//	place NAME [weight N] [memory N] [only ACCELERATOR]
//	release NAME · allocated ACCELERATOR N · overloaded ACCELERATOR yes|no · restore NAME ACCELERATOR
//	weights · waiting
func TestConversations(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no conversations found", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) { converse(t, file) })
	}
}

func converse(t *testing.T, file string) {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	c := &conversation{t: t, q: NewQueue(ByWeight)}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, ">") {
			continue
		}
		out.WriteString(line)
		said, _, _ := strings.Cut(line, "#")
		if words := strings.Fields(said); len(words) > 0 {
			for _, answer := range c.say(words) {
				fmt.Fprintf(&out, "> %s\n", answer)
			}
		}
	}
	if got := out.String(); got != string(text) {
		if *rewrite {
			if err := os.WriteFile(file, []byte(got), 0o666); err != nil {
				t.Fatal(err)
			}
			return
		}
		t.Errorf("the conversation went otherwise:\n%s\nin the file:\n%s", got, text)
	}
}

type conversation struct {
	t *testing.T
	q *Queue
}

func (c *conversation) say(words []string) []string {
	switch words[0] {
	case "queue":
		c.q = NewQueue(map[bool]Order{true: RoundRobin}[len(words) > 1])
		return nil
	case "add":
		v := c.values(words[2:])
		placed, err := c.q.Add(Accelerator{Name: words[1], Profile: Profile{v["compute"], v["memory"], v["in"], v["out"]}, MaxDomains: int(v["max"]), Promised: v["promised"]})
		if err != nil {
			return []string{err.Error()}
		}
		return spell(placed)
	case "place":
		return c.place(words)
	case "restore":
		if err := c.q.Restore(Domain{Name: words[1]}, words[2]); err != nil {
			return []string{err.Error()}
		}
		return nil
	case "release":
		return spell(c.q.Release(words[1]))
	case "allocated":
		return spell(c.q.SetAllocated(words[1], c.number(words[2])))
	case "overloaded":
		c.q.SetOverloaded(words[1], words[2] == "yes")
		return nil
	case "weights":
		var answer []string
		for _, s := range c.q.seats {
			answer = append(answer, fmt.Sprintf("%s %d‰", s.Name, c.q.Weight(s.Name)))
		}
		return answer
	case "waiting":
		return c.q.Waiting()
	}
	c.t.Fatalf("unknown verb %q", words[0])
	return nil
}

func (c *conversation) place(words []string) []string {
	d := Domain{Name: words[1]}
	if i := slices.Index(words, "only"); i > 0 {
		d.Only = words[i+1]
		words = slices.Delete(words, i, i+2)
	}
	v := c.values(words[2:])
	d.Weight, d.Memory = int(v["weight"]), v["memory"]
	if on, ok := c.q.Place(d); ok {
		return []string{d.Name + " → " + on}
	}
	answer := []string{d.Name + " waits"}
	for _, s := range c.q.seats {
		if err := c.q.Refusal(s.Name, d); err != nil {
			answer = append(answer, err.Error())
		}
	}
	return answer
}

func (c *conversation) values(words []string) map[string]uint64 {
	v := make(map[string]uint64)
	for i := 0; i+1 < len(words); i += 2 {
		v[words[i]] = c.number(words[i+1])
	}
	return v
}

func (c *conversation) number(word string) uint64 {
	n, err := strconv.ParseUint(word, 10, 64)
	if err != nil {
		c.t.Fatal(err)
	}
	return n
}

func spell(placed []Placement) []string {
	var answer []string
	for _, p := range placed {
		answer = append(answer, p.Domain+" → "+p.Accelerator)
	}
	return answer
}

// TestManyOnOne places as many domains on one accelerator as there is room for.
func TestManyOnOne(t *testing.T) {
	q := NewQueue(ByWeight)
	if _, err := q.Add(Accelerator{Name: "A0", Profile: Profile{Compute: 1, Memory: 1 << 30}}); err != nil {
		t.Fatal(err)
	}
	for i := range DefaultMaxDomains {
		if _, ok := q.Place(Domain{Name: strconv.Itoa(i)}); !ok {
			t.Fatalf("domain %d waits", i)
		}
	}
	if _, ok := q.Place(Domain{Name: "one more"}); ok {
		t.Fatal("one more than may be is placed")
	}
}

// TestMaxCredits checks that the weights on an accelerator never exceed its limit, also those by default, and that
// freed ones admit another domain.
func TestMaxCredits(t *testing.T) {
	q := NewQueue(ByWeight)
	if _, err := q.Add(Accelerator{Name: "A0", Profile: Profile{Compute: 1, Memory: 1000}, MaxCredits: 512}); err != nil {
		t.Fatal(err)
	}
	for i, d := range []struct {
		weight int
		placed bool
	}{{0, true}, {257, false}, {256, true}, {1, false}} {
		if _, ok := q.Place(Domain{Name: strconv.Itoa(i), Weight: d.weight}); ok != d.placed {
			t.Errorf("domain %d with %d credits is placed: %v, want %v", i, d.weight, ok, d.placed)
		}
	}
	if err := q.Refusal("A0", Domain{Name: "x", Weight: 2}); err == nil || err.Error() != "A0 has 0 of 512 credits left (max_credits), x has 2" {
		t.Errorf("got %v", err)
	}
	if got := spell(q.Release("2")); !slices.Equal(got, []string{"3 → A0"}) {
		t.Errorf("placed: %v", got)
	}
}

// TestGuarantees checks that guarantees never exceed the memory that can be promised.
func TestGuarantees(t *testing.T) {
	q := NewQueue(ByWeight)
	if _, err := q.Add(Accelerator{Name: "A0", Profile: Profile{Compute: 1, Memory: 1000}, Promised: 100}); err != nil {
		t.Fatal(err)
	}
	for i, d := range []struct {
		guarantee uint64
		placed    bool
	}{{60, true}, {41, false}, {40, true}, {1, false}, {0, true}} {
		name := strconv.Itoa(i)
		if _, ok := q.Place(Domain{Name: name, Guarantee: d.guarantee}); ok != d.placed {
			t.Errorf("a domain with a guarantee of %d: placed %v", d.guarantee, ok)
		}
		if !d.placed {
			q.Release(name)
		}
	}
	if placed := q.Release("0"); len(placed) != 0 {
		t.Errorf("%v", placed)
	}
	if _, ok := q.Place(Domain{Name: "late", Guarantee: 60}); !ok {
		t.Error("what was promised to one who left can't be promised again")
	}
}

// TestRandomPlacement starts and ends domains at random, and checks that no domain is lost, no accelerator is
// overbooked, and no domain waits that would fit.
func TestRandomPlacement(t *testing.T) {
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 1))
		q := NewQueue(Order(seed % 2))
		for i := range 1 + rng.IntN(4) {
			p := Profile{rng.Uint64() >> rng.IntN(64), 1 + rng.Uint64N(1000), rng.Uint64N(9), rng.Uint64N(9)}
			if _, err := q.Add(Accelerator{Name: fmt.Sprint("A", i), Profile: p, MaxDomains: 1 + rng.IntN(5), Promised: rng.Uint64N(1000)}); err != nil {
				t.Fatal(err)
			}
		}
		for range 300 {
			switch name := fmt.Sprint("d", rng.IntN(20)); rng.IntN(3) {
			case 0:
				q.Release(name)
			case 1:
				q.SetAllocated(fmt.Sprint("A", rng.IntN(4)), rng.Uint64N(1000))
			default:
				q.Place(Domain{Name: name, Weight: rng.IntN(1000), Memory: rng.Uint64N(300), Guarantee: rng.Uint64N(100)})
			}
			if err := check(q); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
		}
	}
}

func check(q *Queue) error {
	guests, load := make(map[*seat]int), make(map[*seat]uint64)
	placed := 0
	for _, g := range q.domains {
		if g.on != nil {
			placed++
			guests[g.on]++
			load[g.on] += uint64(g.Weight)
		} else if q.choose(g.Domain) != nil {
			return fmt.Errorf("%s waits, though it fits", g.Name)
		}
	}
	if placed+len(q.waiting) != len(q.domains) {
		return fmt.Errorf("%d domains: %d placed, %d waiting", len(q.domains), placed, len(q.waiting))
	}
	for _, s := range q.seats {
		if s.guests != guests[s] || s.load != load[s] || s.guests > s.MaxDomains {
			return fmt.Errorf("%s has %d of %d domains, %d were counted", s.Name, s.guests, s.MaxDomains, guests[s])
		}
	}
	return nil
}
