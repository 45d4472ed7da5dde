package chart

import (
	"testing"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types/ref"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/cel/common"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/apiserver/pkg/cel/mutation"
)

// evaluate evaluates an expression of the policy in the environment of an API server.
func evaluate(t *testing.T, expression string, input map[string]any) any {
	t.Helper()
	return evaluated(t, expression, input).Value()
}

// evaluated is evaluate with a value of CEL.
func evaluated(t *testing.T, expression string, input map[string]any) ref.Val {
	t.Helper()
	set, err := environment.MustBaseEnvSet(version.MajorMinor(1, 36)).Extend(environment.VersionedOptions{
		IntroducedVersion: version.MajorMinor(1, 30),
		EnvOptions: []cel.EnvOption{cel.Variable("object", cel.DynType), cel.Variable("oldObject", cel.DynType),
			cel.Variable("request", cel.DynType), cel.Variable("variables", cel.DynType), common.ResolverEnvOption(new(mutation.DynamicTypeResolver))},
	})
	if err != nil {
		t.Fatal(err)
	}
	env, err := set.Env(environment.NewExpressions)
	if err != nil {
		t.Fatal(err)
	}
	ast, issues := env.Compile(expression)
	if issues.Err() != nil {
		t.Fatalf("%s: %v", expression, issues.Err())
	}
	program, err := env.Program(ast)
	if err != nil {
		t.Fatal(err)
	}
	v, _, err := program.Eval(input)
	if err != nil {
		t.Fatalf("%s: %v", expression, err)
	}
	return v
}

// The driver of a node writes the slices of its node and driver only; the policy is for this service account alone.
func TestAdmission(t *testing.T) {
	p := policy(t)
	const account = "system:serviceaccount:pegasus-system:pegasus"
	slice := func(node, driver string) map[string]any {
		return map[string]any{"spec": map[string]any{"nodeName": node, "driver": driver}}
	}
	for _, c := range []struct {
		about       string
		user, node  string
		object, old any
		want        bool
	}{
		{"creates its own", account, "node1", slice("node1", "pegasus.dev"), nil, true},
		{"changes its own", account, "node1", slice("node1", "pegasus.dev"), slice("node1", "pegasus.dev"), true},
		{"deletes its own", account, "node1", nil, slice("node1", "pegasus.dev"), true},
		{"creates another node's", account, "node1", slice("node2", "pegasus.dev"), nil, false},
		{"takes another node's", account, "node1", slice("node1", "pegasus.dev"), slice("node2", "pegasus.dev"), false},
		{"deletes another node's", account, "node1", nil, slice("node2", "pegasus.dev"), false},
		{"creates one of all nodes", account, "node1", map[string]any{"spec": map[string]any{"driver": "pegasus.dev", "allNodes": true}}, nil, false},
		{"creates another driver's", account, "node1", slice("node1", "gpu.nvidia.com"), nil, false},
		{"has a token without a node", account, "", slice("node1", "pegasus.dev"), nil, false},
		{"another driver creates one", "system:serviceaccount:other:other", "node1", slice("node2", "gpu.nvidia.com"), nil, true},
	} {
		user := map[string]any{"username": c.user}
		if c.node != "" {
			user["extra"] = map[string]any{"authentication.kubernetes.io/node-name": []any{c.node}}
		}
		input := map[string]any{"object": c.object, "oldObject": c.old, "request": map[string]any{"userInfo": user}, "variables": map[string]any{}}
		got := true
		if evaluate(t, p.Spec.MatchConditions[0].Expression, input) == true {
			variables := map[string]any{}
			for _, v := range p.Spec.Variables {
				input["variables"] = variables
				variables[v.Name] = evaluate(t, v.Expression, input)
			}
			input["variables"] = variables
			for _, v := range p.Spec.Validations {
				got = got && evaluate(t, v.Expression, input) == true
				if v.MessageExpression != "" {
					evaluate(t, v.MessageExpression, input)
				}
			}
		}
		if got != c.want {
			t.Errorf("the driver %s: admitted %v, want %v", c.about, got, c.want)
		}
	}
}
