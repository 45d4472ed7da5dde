// Package render renders the Helm chart for tests, as `helm template` does.
package render

import (
	"maps"
	"slices"
	"strings"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
)

// Chart returns the objects of the chart of a folder for Kubernetes 1.37, as YAML. Values that the chart's schema refuses
// are an error.
func Chart(dir string, values map[string]any) (objects []string, err error) {
	return ChartFor(dir, "v1.37.2", values)
}

// ChartFor is Chart for some version of Kubernetes.
func ChartFor(dir, kubernetes string, values map[string]any) (objects []string, err error) {
	c, err := loader.Load(dir)
	if err != nil {
		return nil, err
	}
	version, err := common.ParseKubeVersion(kubernetes)
	if err != nil {
		return nil, err
	}
	cluster := common.DefaultCapabilities.Copy()
	cluster.KubeVersion = *version
	all, err := util.ToRenderValuesWithSchemaValidation(c, values, common.ReleaseOptions{Name: "pegasus", Namespace: "pegasus-system", IsInstall: true}, cluster, false)
	if err != nil {
		return nil, err
	}
	files, err := engine.Render(c, all)
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if strings.HasSuffix(name, ".tpl") {
			continue
		}
		for text := range strings.SplitSeq(files[name], "\n---\n") {
			if strings.TrimSpace(text) != "" {
				objects = append(objects, text)
			}
		}
	}
	return objects, nil
}
