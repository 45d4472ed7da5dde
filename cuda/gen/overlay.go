package main

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// decision is the guest library's implementation of a symbol.
type decision struct {
	Body       string
	Class      string
	Of         string           // alias: the symbol that it follows
	Result     string           // constant
	Out        map[string]int64 // constant: values of outputs
	BeforeInit bool             `toml:"before_init"`
	accessor                    // accessor
	Unsafe     bool             // prohibited while a stream captures, unless the thread's capture mode permits it

	because string // stub: why there is no implementation, if that was decided
}

// refusal is the reason for some stubs.
type refusal struct {
	Symbols []string
	Because string
}

// Kinds of decisions; stub is the kind of a symbol without one.
const (
	bodyManual    = "manual"
	bodyGenerated = "generated"
	bodyAccessor  = "accessor"
	bodyAlias     = "alias"
	bodyConstant  = "constant"
	bodyStub      = "stub"
)

var stubDecision = &decision{Body: bodyStub}

// loadOverlay gives every function its decision.
func loadOverlay(dir string, s *spec) error {
	path := filepath.Join(dir, "overlay.toml")
	var file struct {
		Object  map[string]*object
		Symbol  map[string]*decision
		Refused []refusal
	}
	if err := readTOML(path, &file); err != nil {
		return err
	}
	for _, symbol := range sortedKeys(file.Symbol) {
		if err := checkDecision(s, symbol, file.Symbol[symbol], file.Object); err != nil {
			return fmt.Errorf("%s: %s: %w", path, symbol, err)
		}
	}
	s.Objects = file.Object
	for symbol, d := range file.Symbol {
		s.bySymbol[symbol].decision = d
	}
	if err := refuse(s, file.Refused); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	for _, f := range s.exported() {
		if f.decision == nil {
			f.decision = stubDecision
		}
		if plain := f.plain(s); plain != nil && file.Symbol[plain.Symbol] != nil {
			d := *file.Symbol[plain.Symbol]
			if d.Body != bodyConstant {
				d.Body, d.Of = bodyAlias, plain.Symbol
			}
			f.decision = &d
		}
	}
	return nil
}

// refuse makes symbols stubs with a reason.
func refuse(s *spec, refused []refusal) error {
	for _, r := range refused {
		if r.Because == "" {
			return fmt.Errorf("%v: refused without a reason", r.Symbols)
		}
		for _, symbol := range r.Symbols {
			switch f := s.bySymbol[symbol]; {
			case f == nil:
				return fmt.Errorf("%s: refused, and no such symbol", symbol)
			case f.decision != nil:
				return fmt.Errorf("%s: refused, and has a line or another reason", symbol)
			default:
				f.decision = &decision{Body: bodyStub, because: r.Because}
			}
		}
	}
	return nil
}

// refused returns why f is a stub, if that was decided: for f itself, for the symbol that it is an alias of,
// or for the symbol that it is a variant of.
func (f *function) refused(s *spec) string {
	for f.decision.Body == bodyAlias {
		f = s.bySymbol[f.decision.Of]
	}
	if plain := f.plain(s); plain != nil && f.decision.because == "" {
		return plain.refused(s)
	}
	return f.decision.because
}

// checkRefusals returns an error unless every symbol that programs need to start, or that the CUDA runtime
// looks up, is implemented or refused with a reason.
func checkRefusals(s *spec) error {
	for _, f := range s.Functions {
		if f.Tier <= 2 && f.kind(s) == kindStub && f.refused(s) == "" {
			return fmt.Errorf("%s: of tier %d, not implemented, and not refused with a reason", f.Symbol, f.Tier)
		}
	}
	return nil
}

func checkDecision(s *spec, symbol string, d *decision, objects map[string]*object) error {
	f := s.bySymbol[symbol]
	switch {
	case f == nil:
		return fmt.Errorf("no such symbol")
	case f.Stream != "":
		return fmt.Errorf("follows its plain symbol and needs no line")
	case !strings.Contains(" local cached control copy compute wait ", " "+d.Class+" "):
		return fmt.Errorf("class %q", d.Class)
	case !strings.Contains(" manual generated accessor alias constant ", " "+d.Body+" "):
		return fmt.Errorf("body %q", d.Body)
	case (d.Body == bodyAlias) != (d.Of != ""):
		return fmt.Errorf("of goes with body alias")
	case d.Body == bodyAlias && s.bySymbol[d.Of] == nil:
		return fmt.Errorf("alias of %s, which does not exist", d.Of)
	case (d.Body == bodyConstant) != (d.Result != ""):
		return fmt.Errorf("result goes with body constant")
	}
	return checkAccessor(f, d, objects)
}

// plain returns the symbol without _ptsz or _ptds of a variant that has one.
func (f *function) plain(s *spec) *function {
	if f.Stream == "" {
		return nil
	}
	return s.bySymbol[strings.TrimSuffix(f.Symbol, "_"+f.Stream)]
}

// takesStream reports whether the implementation of f gets one more argument, the stream: f has none, but a
// _ptds variant.
func (f *function) takesStream(s *spec) bool { return s.bySymbol[f.Symbol+"_ptds"] != nil }

// implemented reports whether f has a function pg_SYMBOL.
func (f *function) implemented() bool {
	return slices.Contains([]string{bodyManual, bodyGenerated, bodyAccessor}, f.decision.Body)
}

// target returns the function with the implementation that f uses, or nil.
func (f *function) target(s *spec) *function {
	for f.decision.Body == bodyAlias {
		f = s.bySymbol[f.decision.Of]
	}
	if f.implemented() {
		return f
	}
	return nil
}
