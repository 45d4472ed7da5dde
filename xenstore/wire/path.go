package wire

import (
	"errors"
	"fmt"
	"strings"
)

// Longest paths. A server may have lower limits: Xen's allows 2048 bytes behind /local/domain/N/ as well as anywhere
// else.
const (
	AbsoluteMax = 3072
	RelativeMax = 2048
)

// pathBytes are the bytes allowed in a path.
var pathBytes = func() (ok [256]bool) {
	for _, c := range "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-/_@" {
		ok[c] = true
	}
	return
}()

// CheckPath returns an error for an invalid node path. A path that doesn't begin with a slash is relative to the
// domain's own directory, /local/domain/N.
func CheckPath(path string) error {
	switch {
	case path == "":
		return errors.New("an empty path")
	case path[0] == '@':
		return errors.New("a special path, which is no node's")
	case path[0] == '/' && len(path) > AbsoluteMax:
		return fmt.Errorf("a path of %d bytes, where %d is the most", len(path), AbsoluteMax)
	case path[0] != '/' && len(path) > RelativeMax:
		return fmt.Errorf("a relative path of %d bytes, where %d is the most", len(path), RelativeMax)
	case path != "/" && strings.HasSuffix(path, "/"):
		return errors.New("a path that ends in a slash")
	case strings.Contains(path, "//"):
		return errors.New("a path with an empty part")
	}
	for i := range len(path) {
		if !pathBytes[path[i]] {
			return fmt.Errorf("a path with %q at %d: letters, digits and -/_@ are allowed", path[i], i)
		}
	}
	return nil
}

// Special paths that can be watched without being a node.
const (
	IntroduceDomain = "@introduceDomain" // a domain was introduced
	ReleaseDomain   = "@releaseDomain"   // a domain was released, or has shut down
)

// CheckWatchPath returns an error for an invalid path to watch. Any text may follow an @.
func CheckWatchPath(path string) error {
	if !strings.HasPrefix(path, "@") {
		return CheckPath(path)
	}
	switch {
	case len(path) > RelativeMax:
		return fmt.Errorf("a special path of %d bytes, where %d is the most", len(path), RelativeMax)
	case strings.Contains(path, "\x00"):
		return errors.New("a path with a NUL")
	}
	return nil
}

// Parent returns the path of the parent. That of "/" is "/" itself.
func Parent(path string) string {
	return path[:max(1, strings.LastIndexByte(path, '/'))]
}

// Base returns a path's last part.
func Base(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }

// Below reports whether path is at or below dir.
func Below(path, dir string) bool {
	if dir == "/" {
		return true
	}
	rest, ok := strings.CutPrefix(path, dir)
	return ok && (rest == "" || rest[0] == '/')
}
