package wire

import (
	"errors"
	"fmt"
	"strings"
)

// How long paths may be. A server may draw the line closer: that of Xen allows 2048
// bytes behind /local/domain/N/ as well as anywhere else.
const (
	AbsoluteMax = 3072
	RelativeMax = 2048
)

// pathBytes is what a path may consist of.
var pathBytes = func() (ok [256]bool) {
	for _, c := range "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-/_@" {
		ok[c] = true
	}
	return
}()

// CheckPath says what is wrong with a node's path. One that doesn't begin with a slash is
// relative to the domain's own directory, /local/domain/N.
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

// Special are what can be watched without being a node.
const (
	IntroduceDomain = "@introduceDomain" // a domain has come
	ReleaseDomain   = "@releaseDomain"   // a domain has gone, or has shut down
)

// CheckWatchPath says what is wrong with a path to be watched. What follows an @ may be anything.
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

// Parent is the path above. That of "/" is "/" itself.
func Parent(path string) string {
	return path[:max(1, strings.LastIndexByte(path, '/'))]
}

// Base is a path's last part.
func Base(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }

// Below says whether path is at or below dir.
func Below(path, dir string) bool {
	if dir == "/" {
		return true
	}
	rest, ok := strings.CutPrefix(path, dir)
	return ok && (rest == "" || rest[0] == '/')
}
