package xenstore

import (
	"context"
	"fmt"

	"pegasus/xenstore/wire"
)

// Nodes is what can be done with nodes, by themselves (Client) or in a transaction (Tx).
//
// A path that begins with a slash is absolute; others are below the domain's own
// directory, /local/domain/N. A node has a value, which may be empty, and children.
type Nodes struct {
	on asker
	tx uint32
}

// asker is who carries a request: a client, or the connection of a transaction.
type asker interface {
	do(context.Context, *call) ([]byte, error)
}

// ask sends one request about path. What follows the path in the body is rest.
func (n Nodes) ask(ctx context.Context, op wire.Type, path string, rest []byte) ([]byte, error) {
	if err := wire.CheckPath(path); err != nil {
		return nil, invalid(op, path, err)
	}
	return n.send(ctx, op, path, append(wire.Join(path), rest...))
}

// send sends any body.
func (n Nodes) send(ctx context.Context, op wire.Type, about string, body []byte) ([]byte, error) {
	if len(body) > wire.BodyMax {
		return nil, &Error{op, about, tooLong(len(body), wire.BodyMax)}
	}
	return n.on.do(ctx, &call{packet: wire.Packet{Type: op, Tx: n.tx, Body: body}, path: about})
}

// Request sends any request and returns the answer's body: for what has no method here. A watch
// that is set like this has events that nobody gets.
func (n Nodes) Request(ctx context.Context, op wire.Type, body []byte) ([]byte, error) {
	return n.send(ctx, op, "", body)
}

// Read returns a node's value.
func (n Nodes) Read(ctx context.Context, path string) ([]byte, error) {
	return n.ask(ctx, wire.Read, path, nil)
}

// Write gives a node a value, and makes the node and what is missing above it.
func (n Nodes) Write(ctx context.Context, path string, value []byte) error {
	_, err := n.ask(ctx, wire.Write, path, value)
	return err
}

// Mkdir makes a node without a value, and what is missing above it. One that is there stays as it is.
func (n Nodes) Mkdir(ctx context.Context, path string) error {
	_, err := n.ask(ctx, wire.Mkdir, path, nil)
	return err
}

// Remove takes away a node and all below it. It is no error if there is none, as long as there
// is one above it.
func (n Nodes) Remove(ctx context.Context, path string) error {
	_, err := n.ask(ctx, wire.Rm, path, nil)
	return err
}

// Perms returns who may do what to a node; see Perm.
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

// SetPerms says who may do what to a node. The first one names the owner, and what those may who
// aren't named. The path may be IntroduceDomain or ReleaseDomain, which others may then watch.
func (n Nodes) SetPerms(ctx context.Context, path string, perms ...Perm) error {
	if len(perms) == 0 {
		return invalid(wire.SetPerms, path, fmt.Errorf("no permissions: the first names the owner"))
	}
	// Other special paths some servers don't even answer.
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
