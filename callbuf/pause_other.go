//go:build !amd64

package callbuf

func pause() {}
