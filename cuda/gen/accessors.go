package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// object is a kind of object of the guest library, as accessors find it.
type object struct {
	Headers []string // declare what find and the accessors' expressions use
	Lock    string   // statement that holds the objects' lock until the end of the scope
	Declare []string // variables that find sets
	Find    string   // expression: the result of the lookup; see expand for its placeholders
}

// accessor is the body of a function that checks its arguments, finds an object, and reads or changes it.
// Expressions are C; they use the names of the function's parameters and of the object's variables.
type accessor struct {
	Object string // key of [object]; empty for none
	Type   string // value of the placeholder {type} in the object's find
	Need   string // condition that is checked before the lookup; CUDA_ERROR_INVALID_VALUE if it does not hold
	Valid  string // as need, after the lookup
	Value  string // expression that is stored in the output
	Set    string // statement that changes the object or stores outputs
	Then   string // expression: the result of the call; CUDA_SUCCESS if empty
}

var placeholder = regexp.MustCompile(`\{(\w+)\}`)

// expand replaces {type} by the accessor's type and another {TYPE} by the name of f's parameter of that C type.
func (f *function) expand(text string) (string, error) {
	var err error
	expanded := placeholder.ReplaceAllStringFunc(text, func(p string) string {
		name := p[1 : len(p)-1]
		if name == "type" {
			if f.decision.Type == "" {
				err = fmt.Errorf("the object needs a type")
			}
			return f.decision.Type
		}
		i := slices.IndexFunc(f.Params, func(p param) bool { return p.Type == name })
		if i < 0 {
			err = fmt.Errorf("no parameter of type %s for the object", name)
			return ""
		}
		return f.Params[i].Name
	})
	return expanded, err
}

// output returns the name of f's only output, or "".
func (f *function) output() string {
	name := ""
	for _, p := range f.Params {
		if p.Dir == "out" && name != "" {
			return ""
		}
		if p.Dir == "out" {
			name = p.Name
		}
	}
	return name
}

// checkAccessor returns an error if the parts of f's decision do not fit each other.
func checkAccessor(f *function, d *decision, objects map[string]*object) error {
	if d.Body != bodyAccessor {
		if d.accessor != (accessor{}) {
			return fmt.Errorf("object, type, need, valid, value, set and then go with body accessor")
		}
		return nil
	}
	if d.Object == "" {
		if d.Valid != "" || d.Type != "" {
			return fmt.Errorf("valid and type go with an object")
		}
	} else if objects[d.Object] == nil {
		return fmt.Errorf("object %q", d.Object)
	}
	if d.Value != "" && f.output() == "" {
		return fmt.Errorf("value goes with one output")
	}
	if d.Object == "" {
		return nil
	}
	of := *f
	of.decision = d
	_, err := of.expand(strings.Join(append(slices.Clone(objects[d.Object].Declare), objects[d.Object].Find), " "))
	return err
}

func emitAccessors(w *writer, s *spec) {
	w.cHeader("Functions that check their arguments, find an object, and read or change it: accessors in cuda/spec/overlay.toml.")
	headers := map[string]bool{"core/zz_impl.h": true}
	for _, o := range s.Objects {
		for _, h := range o.Headers {
			headers[h] = true
		}
	}
	w.f("#include <string.h>\n\n")
	for _, h := range sortedKeys(headers) {
		w.f("#include \"%s\"\n", h)
	}
	w.f("\n#pragma GCC diagnostic ignored \"-Wunused-parameter\"\n#pragma GCC diagnostic ignored \"-Wunused-but-set-variable\"\n")
	for _, f := range s.exported() {
		if f.decision.Body == bodyAccessor {
			emitAccessor(w, s, f)
		}
	}
}

func emitAccessor(w *writer, s *spec, f *function) {
	d := f.decision
	w.f("\n%s\n{\n", implPrototype(s, f))
	refuse := func(conditions ...string) {
		w.f("\tif (%s)\n\t\treturn CUDA_ERROR_INVALID_VALUE;\n", strings.Join(conditions, " || "))
	}
	var wrong []string
	for _, p := range f.Params {
		if strings.HasSuffix(p.Type, "*") {
			wrong = append(wrong, "!"+p.Name)
		}
	}
	if d.Need != "" {
		wrong = append(wrong, "!("+d.Need+")")
	}
	if len(wrong) > 0 {
		refuse(wrong...)
	}
	if o := s.Objects[d.Object]; o != nil {
		if o.Lock != "" {
			w.f("\t%s;\n", o.Lock)
		}
		for _, v := range o.Declare {
			v, _ = f.expand(v) // checkAccessor has found no error, here and below
			w.f("\t%s;\n", v)
		}
		find, _ := f.expand(o.Find)
		w.f("\tCUresult found = %s;\n\tif (found != CUDA_SUCCESS)\n\t\treturn found;\n", find)
	}
	if d.Valid != "" {
		refuse("!(" + d.Valid + ")")
	}
	if d.Value != "" {
		w.f("\t*%s = %s;\n", f.output(), d.Value)
	}
	if d.Set != "" {
		w.f("\t%s;\n", d.Set)
	}
	then := d.Then
	if then == "" {
		then = "CUDA_SUCCESS"
	}
	w.f("\treturn %s;\n}\n", then)
}
