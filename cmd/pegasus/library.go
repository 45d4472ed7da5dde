package main

import (
	"fmt"
	"os"
	"path/filepath"
)

// libraryName is the library that programs load.
const libraryName = "libcuda.so.1"

// findLibrary returns the path of our libcuda.so.1: $PEGASUS_LIBCUDA, or beside this command as built or as
// installed.
func findLibrary() (string, error) {
	if given := os.Getenv("PEGASUS_LIBCUDA"); given != "" {
		if info, err := os.Stat(given); err == nil && info.IsDir() {
			given = filepath.Join(given, libraryName)
		}
		if _, err := os.Stat(given); err != nil {
			return "", fmt.Errorf("PEGASUS_LIBCUDA: %w", err)
		}
		if filepath.Base(given) != libraryName {
			return "", fmt.Errorf("PEGASUS_LIBCUDA=%s: the file must be called %s, since programs load that name", given, libraryName)
		}
		return filepath.Abs(given)
	}
	for _, path := range libraryPlaces() {
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s isn't in any of %v: run `make`, or set PEGASUS_LIBCUDA to where it is", libraryName, libraryPlaces())
}

func libraryPlaces() []string {
	var places []string
	if dir := ownDir(); dir != "" {
		places = append(places,
			filepath.Join(dir, "..", "guest", libraryName),
			filepath.Join(dir, "..", "lib", "pegasus", libraryName))
	}
	return append(places, filepath.Join("/usr/lib/pegasus", libraryName))
}

// ownDir returns the directory of this command's binary.
func ownDir() string {
	self, err := os.Executable()
	if err != nil {
		return ""
	}
	if real, err := filepath.EvalSymlinks(self); err == nil {
		self = real
	}
	return filepath.Dir(self)
}
