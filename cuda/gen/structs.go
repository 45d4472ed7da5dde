package main

import (
	"strings"
)

// sharedTypedef resolves typedef names that several structures have, as headerVersion does.
var sharedTypedef = map[string]string{"CUDA_KERNEL_NODE_PARAMS": "CUDA_KERNEL_NODE_PARAMS_v2_st"}

func (st *structure) known() bool { return len(st.Fields) > 0 }

// typedefs returns a structure's names without the struct keyword.
func typedefs(tag string, st *structure) []string {
	if len(st.Typedefs) == 0 {
		return []string{strings.TrimSuffix(tag, "_st")}
	}
	var names []string
	for _, t := range st.Typedefs {
		if owner := sharedTypedef[t]; owner == "" || owner == tag {
			names = append(names, t)
		}
	}
	return names
}

func emitStructs(w *writer, s *spec) {
	owner := map[string]string{} // typedef or tag → tag
	for _, tag := range sortedKeys(s.Structs) {
		st := s.Structs[tag]
		if !st.known() {
			continue
		}
		owner[tag] = tag
		for _, t := range typedefs(tag, st) {
			owner[t] = tag
			w.f("typedef %s %s %s;\n", st.Kind, tag, t)
		}
	}
	w.f("\n")
	done := map[string]bool{}
	var emit func(tag string)
	emit = func(tag string) {
		if done[tag] {
			return
		}
		done[tag] = true
		for _, f := range s.Structs[tag].Fields {
			base, _, _ := strings.Cut(f.Type, "[")
			if t := owner[base]; t != "" {
				emit(t)
			}
		}
		emitStruct(w, s, tag)
	}
	for _, tag := range sortedKeys(s.Structs) {
		if s.Structs[tag].known() {
			emit(tag)
		}
	}
}

// member is a field with the fields nested in it.
type member struct {
	field
	name    string
	members []*member
}

// tree converts dotted names to nested members.
func tree(fields []field) []*member {
	root := &member{}
	at := map[string]*member{"": root}
	for _, f := range fields {
		parent, name := "", f.Name
		if i := strings.LastIndexByte(f.Name, '.'); i >= 0 {
			parent, name = f.Name[:i], f.Name[i+1:]
		}
		m := &member{field: f, name: name}
		at[f.Name] = m
		p := at[parent]
		p.members = append(p.members, m)
	}
	return root.members
}

// overAligned are structures with an alignment that no member explains.
var overAligned = map[string]string{"CUtensorMap_st": "\n#if defined(__cplusplus)\n\talignas(64)\n#else\n\t_Alignas(64)\n#endif\n"}

func emitStruct(w *writer, s *spec, tag string) {
	st := s.Structs[tag]
	w.f("%s %s {%s\n", st.Kind, tag, overAligned[tag])
	emitMembers(w, s, tree(st.Fields), st.Kind == "union", 1)
	w.f("};\n\n")
}

// emitMembers writes members in order; members at the same offset become an unnamed union.
func emitMembers(w *writer, s *spec, ms []*member, union bool, depth int) {
	indent := strings.Repeat("\t", depth)
	for len(ms) > 0 {
		n, end := 1, ms[0].Offset+ms[0].Size
		for !union && n < len(ms) && ms[n].Offset < end {
			end = max(end, ms[n].Offset+ms[n].Size)
			n++
		}
		if n > 1 {
			w.f("%sunion {\n", indent)
			emitMembers(w, s, ms[:n], true, depth+1)
			w.f("%s};\n", indent)
		} else {
			emitMember(w, s, ms[0], indent, depth)
		}
		ms = ms[n:]
	}
}

func emitMember(w *writer, s *spec, m *member, indent string, depth int) {
	switch {
	case len(m.members) > 0:
		w.f("%s%s {\n", indent, m.Type)
		emitMembers(w, s, m.members, m.Type == "union", depth+1)
		w.f("%s} %s;\n", indent, m.name)
	case m.Type == "union" || m.Type == "struct":
		w.f("%sunsigned long long %s[%d];\n", indent, m.name, m.Size/8)
	default:
		base, array, isArray := strings.Cut(m.Type, "[")
		if strings.HasPrefix(base, "CU") && strings.Contains(base, "_st") {
			base = "struct " + base
		}
		w.f("%s%s", indent, declare(base, m.name))
		if isArray {
			w.f("[%s", array)
		}
		w.f(";\n")
	}
}
