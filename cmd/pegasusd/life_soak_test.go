//go:build soak

package main

import "testing"

func TestSoakContainerOverRestarts(t *testing.T) { containerOverRestarts(t, 20) }

func TestSoakManyLives(t *testing.T) { manyLives(t, 10_000) }
