//go:build !amd64

package engine

import "runtime"

func pause() { runtime.Gosched() }
