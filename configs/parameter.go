package configs

import (
	"slices"
	"strconv"
	"time"

	"pegasus/policies"
)

// parameter is a parameter of the policies; its declaration has the type and the bounds.
type parameter struct {
	*policies.Param
	of *policies.Values
}

func (p parameter) String() string {
	switch n := p.of.Get(p.Param); p.Kind {
	case policies.Duration:
		return quote(shortest(time.Duration(n)))
	case policies.Flag:
		return strconv.FormatBool(n != 0)
	case policies.Word:
		return quote(p.Words[n])
	default:
		return strconv.FormatInt(n, 10)
	}
}

func (p parameter) set(v any) error {
	n, err := p.read(v)
	if err == nil {
		p.of.Set(p.Param, n)
	}
	return err
}

// read returns the value that v spells.
func (p parameter) read(v any) (n int64, err error) {
	switch p.Kind {
	case policies.Duration:
		var d time.Duration
		err = span{&d, time.Duration(p.Min), time.Duration(p.Max), p.Zero}.set(v)
		return int64(d), err
	case policies.Flag:
		var is bool
		if err = (boolean{&is}).set(v); is {
			n = 1
		}
		return n, err
	case policies.Word:
		var word string
		err = choice{&word, p.Words}.set(v)
		return int64(slices.Index(p.Words, word)), err
	default:
		var count int
		err = whole{&count, int(p.Min), int(p.Max), p.Zero}.set(v)
		return int64(count), err
	}
}
