package telemetry

// DeviceInfo says which device it is, whatever number it has in this process.
// It does not change. What is not known is empty.
type DeviceInfo struct {
	// UUID is the same in every process that uses the device: "GPU-..." of a
	// GPU, "MIG-..." of an instance of one.
	UUID string
	// PCIBusID is where the device is in its host, such as "0000:3b:00.0".
	PCIBusID string
	// Host is the machine that the device is in.
	Host string
	// Name is such as "NVIDIA H200", Kind is "cuda" or "sim".
	Name, Kind string
}

var infoMetrics = []definition{
	{name: MetricDeviceInfo, kind: gauge, labels: []string{"uuid", "pci_bus_id", "host", "device_name", "device_kind"},
		help: "Which device it is; always 1. All processes on a GPU have the same uuid for it, whatever its number is to them."},
}

func (s Source) collectInfo(out emitter) {
	i := s.Info
	out.send(MetricDeviceInfo, 1, i.UUID, i.PCIBusID, i.Host, i.Name, i.Kind)
}
