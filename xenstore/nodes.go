package xenstore

import (
	"context"
	"fmt"

	"pegasus/xenstore/wire"
)

// Nodes are the operations on nodes, outside (Client) or inside a transaction (Tx).
//
// A path that begins with a slash is absolute; others are below the domain's own directory, /local/domain/N. A node
// has a value, which may be empty, and children.
type Nodes struct {
	on asker
	tx uint32
}

// asker sends a request: a client, or the connection of a transaction.
type asker interface {
	do(context.Context, *call) ([]byte, error)
}

// ask sends one request about path, with rest after the path in the body.
func (n Nodes) ask(ctx context.Context, op wire.Type, path string, rest []byte) ([]byte, error) {
	if err := wire.CheckPath(path); err != nil {
		return nil, invalid(op, path, err)
	}
	return n.send(ctx, op, path, append(wire.Join(path), rest...))
}

// send sends a request with any body.
func (n Nodes) send(ctx context.Context, op wire.Type, about string, body []byte) ([]byte, error) {
	if len(body) > wire.BodyMax {
		return nil, &Error{op, about, tooLong(len(body), wire.BodyMax)}
	}
	return n.on.do(ctx, &call{packet: wire.Packet{Type: op, Tx: n.tx, Body: body}, path: about})
}

// Request sends any request and returns the answer's body, for requests without a method here. The events of a watch
// set like this are dropped.
func (n Nodes) Request(ctx context.Context, op wire.Type, body []byte) ([]byte, error) {
	return n.send(ctx, op, "", body)
}

// Read returns a node's value.
func (n Nodes) Read(ctx context.Context, path string) ([]byte, error) {
	return n.ask(ctx, wire.Read, path, nil)
}

// Write sets a node's value, and creates the node and its missing ancestors.
func (n Nodes) Write(ctx context.Context, path string, value []byte) error {
	_, err := n.ask(ctx, wire.Write, path, value)
	return err
}

// Mkdir creates a node without a value, and its missing ancestors. An existing node is unchanged.
func (n Nodes) Mkdir(ctx context.Context, path string) error {
	_, err := n.ask(ctx, wire.Mkdir, path, nil)
	return err
}

// Remove removes a node and all below it. A missing node is no error, as long as its parent exists.
func (n Nodes) Remove(ctx context.Context, path string) error {
	_, err := n.ask(ctx, wire.Rm, path, nil)
	return err
}

// Perms returns a node's permissions; see Perm.
func (n Nodes) Perms(ctx context.Context, path string) ([]Perm, error) {
	body, err := n.ask(ctx, wire.GetPerms, path, nil)
	if err != nil {
		return nil, err
	}
	perms, err := wire.ParsePerms(wire.Split(body))
	if err != nil {
		return nil, &Error{wire.GetPerms, path, err}
	}
	return perms, nil
}

// SetPerms sets a node's permissions. The first one names the owner and the access of all domains without a
// permission of their own. The path may be IntroduceDomain or ReleaseDomain, which the domains with read access may
// then watch.
func (n Nodes) SetPerms(ctx context.Context, path string, perms ...Perm) error {
	if len(perms) == 0 {
		return invalid(wire.SetPerms, path, fmt.Errorf("no permissions: the first names the owner"))
	}
	// Some servers don't even answer for other special paths.
	if err := wire.CheckPath(path); err != nil && path != IntroduceDomain && path != ReleaseDomain {
		return invalid(wire.SetPerms, path, err)
	}
	parts := []string{path}
	for _, p := range perms {
		parts = append(parts, p.String())
	}
	_, err := n.send(ctx, wire.SetPerms, path, wire.Join(parts...))
	return err
}
