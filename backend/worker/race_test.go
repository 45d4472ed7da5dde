//go:build race

package worker

import "time"

func init() { promptly = 5 * time.Second }
