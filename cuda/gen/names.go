package main

import (
	"fmt"
	"path/filepath"
	"strings"
)

// loadTexts gives every result the text of cuGetErrorString.
func loadTexts(dir string, s *spec) error {
	path := filepath.Join(dir, "texts.toml")
	if err := readTOML(path, &s.Texts); err != nil {
		return err
	}
	values := s.Enums["cudaError_enum"].Values
	for _, name := range byValue(values) {
		if s.text(name) == "" {
			return fmt.Errorf("%s: %s has no text", path, name)
		}
	}
	for _, key := range sortedKeys(s.Texts) {
		if _, err := resultNumber(s, key); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	return nil
}

// text returns the result of cuGetErrorString for the result with that name.
func (s *spec) text(name string) string {
	return s.Texts[strings.TrimPrefix(strings.TrimPrefix(name, "CUDA_ERROR_"), "CUDA_")]
}
