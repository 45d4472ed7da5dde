//go:build !amd64

package lane

func vectorLevel() int { return 0 }
