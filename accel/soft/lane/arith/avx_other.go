//go:build !amd64

package arith

func detectVectorLevel() int { return 0 }
