package policies

import (
	"fmt"
	"strings"
	"time"
)

// Param is a parameter of one or several policies. It is a key of [[accelerator]], an option of the simulator's
// plans, a member of a trace's options, and a row of docs/policies.md. A policy's file declares it by
// newDuration, newCount, newFlag or newWord, keeps the result in a variable, and lists it in the policy's Spec;
// other policies may list it too. The policy reads the value once, when it is made: so a change of any parameter
// takes effect in a running daemon, which makes a new policy.
type Param struct {
	Key  string // of an [[accelerator]]
	Name string // in traces and in the simulator's options; by default Key in camel case
	Doc  string // meaning, a phrase
	Zero string // meaning of 0; "": 0 is not allowed
	Unit string // of a count, such as "%"

	Kind              ParamKind
	Default, Min, Max int64    // in nanoseconds, if it is a duration; indices of Words
	Words             []string // of a word: the allowed ones, the default first
	AtLeast           *Param   // the value must be no less than that of this one; nil: no such limit

	// bare is set if 0 in Options is 0 and not the default. (Recorded traces depend on it.)
	bare  bool
	index int // in Values
}

// ParamKind is the type of a parameter's values.
type ParamKind uint8

const (
	Duration ParamKind = iota
	Count
	Flag
	Word
)

// maxParams bounds the parameters of all policies together. Options are copied, so it is small; raise it when it is
// reached.
const maxParams = 32

// declared is the number of parameters declared so far.
var declared int

// declare completes a parameter.
func declare(p Param, kind ParamKind, otherwise, least, most int64) *Param {
	if declared == maxParams {
		panic("policies: declare " + p.Key + ": maxParams is reached; raise it")
	}
	p.Kind, p.Default, p.Min, p.Max = kind, otherwise, least, most
	p.index = declared
	declared++
	if p.Name == "" {
		for _, word := range strings.Split(p.Key, "_") {
			p.Name += strings.ToUpper(word[:1]) + word[1:]
		}
	}
	return &p
}

// The handles by which a policy reads a parameter of each kind.
type (
	durationParam struct{ *Param }
	countParam    struct{ *Param }
	flagParam     struct{ *Param }
	wordParam     struct{ *Param }
)

func newDuration(p Param, otherwise, least, most time.Duration) durationParam {
	return durationParam{declare(p, Duration, int64(otherwise), int64(least), int64(most))}
}

func newCount(p Param, otherwise, least, most int) countParam {
	return countParam{declare(p, Count, int64(otherwise), int64(least), int64(most))}
}

func newFlag(p Param) flagParam { return flagParam{declare(p, Flag, 0, 0, 1)} }

func newWord(p Param, words ...string) wordParam {
	p.Words = words
	return wordParam{declare(p, Word, 0, 0, int64(len(words)-1))}
}

func (p durationParam) of(o *Options) time.Duration { return time.Duration(o.Get(p.Param)) }
func (p countParam) of(o *Options) int              { return int(o.Get(p.Param)) }
func (p flagParam) of(o *Options) bool              { return o.Get(p.Param) != 0 }
func (p wordParam) of(o *Options) string            { return p.Words[o.Get(p.Param)] }

// Values holds a value of each parameter. The zero Values hold the defaults. Values are comparable.
type Values struct {
	// raw are the values by Param.index. 0 is the default; a negative value is 0, if 0 isn't the default.
	raw [maxParams]int64
}

// DefaultValues returns the values that an [[accelerator]] without keys has.
func DefaultValues() Values {
	var v Values
	for _, p := range Params() {
		v.Set(p, p.Default)
	}
	return v
}

// Get returns the value of a parameter.
func (v *Values) Get(p *Param) int64 {
	switch n := v.raw[p.index]; {
	case n > 0:
		return n
	case p.bare || n < 0 && p.Zero != "":
		return 0
	}
	return p.Default
}

// Set changes the value of a parameter; the caller has checked its range.
func (v *Values) Set(p *Param, n int64) {
	if n == 0 && p.Default != 0 && !p.bare {
		n = -1
	}
	v.raw[p.index] = n
}

// SetOption changes the value of a parameter as traces and the simulator spell it: 0 is the default, and a negative
// value stands for 0 where that has a meaning of its own.
func (v *Values) SetOption(p *Param, n int64) { v.raw[p.index] = n }

// check returns an error that names the first of the parameters that is out of its range.
func (v *Values) check(params []*Param) error {
	for _, p := range params {
		n := v.raw[p.index]
		given := n != 0 && (n > 0 || p.Zero == "" || p.bare)
		least := p.Min
		if p.AtLeast != nil {
			n, least, given = v.Get(p), max(least, v.Get(p.AtLeast)), true
		}
		if given && (n < least || n > p.Max) {
			return fmt.Errorf("%s is %s; %s to %s is allowed", strings.ReplaceAll(p.Key, "_", " "), p.spell(n), p.spell(least), p.spell(p.Max))
		}
	}
	return nil
}

// spell returns a value for people.
func (p *Param) spell(n int64) string {
	if p.Kind == Duration {
		return time.Duration(n).String()
	}
	return fmt.Sprint(n)
}

// Params returns the parameters of all policies in their published order: those of the policies that lend windows or
// budgets, then those of the policies that lend requests, each in the order of the policies, and at last those of
// reserves, which all of the latter have.
func Params() []*Param {
	var all []*Param
	seen := map[*Param]bool{}
	add := func(params []*Param) {
		for _, p := range params {
			if !seen[p] {
				seen[p] = true
				all = append(all, p)
			}
		}
	}
	for _, requests := range []bool{false, true} {
		for i := range specs {
			if s := &specs[i]; (s.Lends == Requests) == requests {
				add(s.Params)
			}
		}
	}
	add(reserveParams)
	return all
}

// Parameter returns the parameter with that key or name, or nil. Case and underscores are ignored.
func Parameter(name string) *Param {
	plain := func(s string) string { return strings.ToLower(strings.ReplaceAll(s, "_", "")) }
	for _, p := range Params() {
		if plain(name) == plain(p.Key) || plain(name) == plain(p.Name) {
			return p
		}
	}
	return nil
}
