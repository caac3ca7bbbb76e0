// The boards, alerts and recording rules as a mixin, for those whose monitoring is
// written in Jsonnet: import it, set _config, and render it as any other mixin.
{
  _config+:: {
    // Before the paths of boards in dashboard_url, such as https://grafana.example.com.
    grafanaURL: '',
    // The folder of boards, for tools that read it.
    grafanaDashboardFolder: 'Fencepost',
  },
  local config = self._config,
  local groups = std.parseYaml(importstr 'rules/fencepost.yaml').groups,
  local alerts(rules) = [r for r in rules if 'alert' in r],

  grafanaDashboardFolder: config.grafanaDashboardFolder,
  grafanaDashboards+:: {
    'fencepost-fleet.json': import 'fleet.json',
    'fencepost-guard.json': import 'guard.json',
    'fencepost-jobs.json': import 'jobs.json',
    'fencepost-operations.json': import 'operations.json',
    'fencepost-overview.json': import 'overview.json',
    'fencepost-streams.json': import 'streams.json',
  },
  prometheusAlerts+:: {
    groups+: [
      g { rules: [r { annotations+: { dashboard_url: config.grafanaURL + super.dashboard_url } } for r in g.rules] }
      for g in groups if alerts(g.rules) != []
    ],
  },
  prometheusRules+:: { groups+: [g for g in groups if alerts(g.rules) == []] },
}
