package control

import "runtime/debug"

// release is the build name that the Makefile sets.
var release string

// Release returns the name of this binary's build, so that binaries of one build can recognize each other: the
// Makefile's name, else the module's version if it has one, else the commit that it was built from.
func Release() string {
	if release != "" {
		return release
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	commit, dirty := "", ""
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			commit = s.Value[:min(12, len(s.Value))]
		case "vcs.modified":
			if s.Value == "true" {
				dirty = "+changes"
			}
		}
	}
	if commit == "" {
		return "unversioned"
	}
	return commit + dirty
}
