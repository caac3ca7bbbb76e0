package servers

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/exporter/otlpexporter"
	"go.opentelemetry.io/collector/otelcol"
	"go.opentelemetry.io/collector/otelcol/otelcoltest"
	"go.opentelemetry.io/collector/processor"
	"go.opentelemetry.io/collector/processor/batchprocessor"
	"go.opentelemetry.io/collector/processor/memorylimiterprocessor"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
	"go.opentelemetry.io/collector/service/telemetry/otelconftelemetry"
)

const collectorFile = root + "/dashboards/compose/collector.yaml"

// factories are the parts that the configuration may name, which every
// distribution of the collector has.
func factories() (f otelcol.Factories, err error) {
	if f.Receivers, err = otelcol.MakeFactoryMap[receiver.Factory](otlpreceiver.NewFactory()); err != nil {
		return f, err
	}
	if f.Processors, err = otelcol.MakeFactoryMap[processor.Factory](batchprocessor.NewFactory(), memorylimiterprocessor.NewFactory()); err != nil {
		return f, err
	}
	f.Exporters, err = otelcol.MakeFactoryMap[exporter.Factory](otlpexporter.NewFactory())
	f.Telemetry = otelconftelemetry.NewFactory()
	return f, err
}

func validateCollector(t *testing.T, file string) error {
	t.Helper()
	parts, err := factories()
	must(t, err)
	_, err = otelcoltest.LoadConfigAndValidate(file, parts)
	return err
}

func TestTheCollectorTakesItsConfiguration(t *testing.T) {
	must(t, validateCollector(t, collectorFile))
}

func TestABrokenCollectorConfigurationIsSeen(t *testing.T) {
	text, err := os.ReadFile(collectorFile)
	must(t, err)
	for name, broken := range map[string]string{
		"an unknown exporter": strings.ReplaceAll(string(text), "otlp_grpc", "tempo_grpc"),
		"an unknown key":      strings.Replace(string(text), "send_batch_size", "send_badge_size", 1),
		"a missing part":      strings.Replace(string(text), "exporters: [otlp_grpc]", "exporters: [debug]", 1),
		"a batch of nothing":  strings.Replace(string(text), "send_batch_max_size: 2048", "send_batch_max_size: 1", 1),
	} {
		file := filepath.Join(t.TempDir(), "collector.yaml")
		must(t, os.WriteFile(file, []byte(broken), 0o600))
		if err := validateCollector(t, file); err == nil || broken == string(text) {
			t.Errorf("%s was taken", name)
		}
	}
}
