package xenstore_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log"
	"strconv"

	"pegasus/xenstore"
	"pegasus/xenstore/memory"
)

// store returns the examples' server: on a Xen host that would be xenstore.Local().
func store() xenstore.Dialer { return memory.New(memory.Options{}).Domain(0) }

func Example() {
	ctx := context.Background()
	c, err := xenstore.Dial(ctx, store())
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	if err := c.Write(ctx, "/local/domain/7/name", []byte("web")); err != nil {
		log.Fatal(err)
	}
	name, err := c.Read(ctx, "/local/domain/7/name")
	fmt.Printf("%s, %v\n", name, err)
	_, err = c.Read(ctx, "/local/domain/8/name")
	fmt.Println(err, errors.Is(err, fs.ErrNotExist))
	// Output:
	// web, <nil>
	// xenstore: READ /local/domain/8/name: no such file or directory true
}

// A read followed by a write belongs in a transaction.
func ExampleClient_Update() {
	ctx := context.Background()
	c, err := xenstore.Dial(ctx, store())
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	take := func() (number int, err error) {
		err = c.Update(ctx, func(tx *xenstore.Tx) error {
			value, err := tx.Read(ctx, "/next")
			switch {
			case errors.Is(err, fs.ErrNotExist):
				number = 1
			case err != nil:
				return err
			default:
				if number, err = strconv.Atoi(string(value)); err != nil {
					return err
				}
			}
			return tx.Write(ctx, "/next", []byte(strconv.Itoa(number+1)))
		})
		return number, err
	}
	for range 3 {
		fmt.Println(take())
	}
	// Output:
	// 1 <nil>
	// 2 <nil>
	// 3 <nil>
}

// An event names the changed path. Since a watch begins with an event, this is all that is needed to follow a value.
func ExampleClient_Watch() {
	ctx := context.Background()
	c, err := xenstore.Dial(ctx, store())
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	w, err := c.Watch(ctx, "/state")
	if err != nil {
		log.Fatal(err)
	}
	defer w.Close(ctx)
	for i := 0; i < 3; i++ {
		if _, err := w.Next(ctx); err != nil {
			log.Fatal(err)
		}
		state, err := c.Read(ctx, "/state")
		if errors.Is(err, fs.ErrNotExist) {
			state = []byte("not there yet")
		}
		fmt.Printf("%s\n", state)
		if err := c.Write(ctx, "/state", fmt.Append(nil, "step ", i+1)); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// not there yet
	// step 1
	// step 2
}

// Domain 0 gives a domain a directory of its own, with all permissions in it.
func ExampleNodes_SetPerms() {
	ctx := context.Background()
	s := memory.New(memory.Options{})
	defer s.Close()
	tools, err := xenstore.Dial(ctx, s.Domain(0))
	if err != nil {
		log.Fatal(err)
	}
	defer tools.Close()
	const home = "/local/domain/7/data"
	if err := tools.Mkdir(ctx, home); err != nil {
		log.Fatal(err)
	}
	if err := tools.SetPerms(ctx, home, xenstore.Perm{Access: xenstore.CanRead, Dom: 7}); err != nil {
		log.Fatal(err)
	}

	guest, err := xenstore.Dial(ctx, s.Domain(7))
	if err != nil {
		log.Fatal(err)
	}
	defer guest.Close()
	fmt.Println(guest.Write(ctx, "data/state", []byte("ready")))
	fmt.Println(guest.Write(ctx, "name", []byte("mine")))
	perms, err := tools.Perms(ctx, home)
	fmt.Println(perms, err)
	// Output:
	// <nil>
	// xenstore: WRITE name: permission denied
	// [r7] <nil>
}
