package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"pegasus/callbuf/region"
	"pegasus/xenstore"
	"pegasus/xenstore/wire"
)

// tree does to its part of the XenStore what a domU may: nodes up to its quota, deep ones and ones with long values, where values should be
// and below them; permissions that let no domain read; transactions that aren't ended; and it all goes at once.
func tree(end time.Time) (n int, err error) {
	a, err := newAgent()
	if err != nil {
		return 0, err
	}
	defer a.close()
	ctx := context.Background()
	id, err := a.store.Read(ctx, "domid")
	if err != nil {
		return 0, err
	}
	own, err := wire.ParseDomID(string(id))
	if err != nil {
		return 0, err
	}
	names := []string{region.StoreState, region.StoreVersion, region.StoreControl, region.StorePort, "name", "-", "_@", ":", "0", strings.Repeat("x", 200)}
	refused := 0
	for ; time.Now().Before(end); n++ {
		path := region.StoreDir
		for range 1 + rand.IntN(8) {
			path += "/" + names[rand.IntN(len(names))]
		}
		switch rand.IntN(6) {
		case 0, 1, 2:
			err = a.store.Write(ctx, path, []byte(strings.Repeat("\x00\n\xff", rand.IntN(650))))
		case 3:
			err = a.store.SetPerms(ctx, path, xenstore.Perm{Dom: own}, xenstore.Perm{Dom: xenstore.DomID(rand.IntN(4))})
		case 4:
			_, err = a.store.Begin(ctx) // and never ended
		default:
			if n%50 == 0 {
				err = a.store.Remove(ctx, region.StoreDir)
			}
		}
		if err != nil {
			refused++
		}
		if n%200 == 0 { // its transactions end with the connection
			a.store.Close()
			if a.store, err = xenstore.DialAgain(ctx, xenstore.Local()); err != nil {
				return n, err
			}
			a.publish("8", "8", region.StoreReady)
		}
	}
	if refused == n {
		return n, fmt.Errorf("all is refused, the last because of %w", err)
	}
	return n, nil
}
