export interface Options extends ui.OptionsWithLegend, ui.OptionsWithTooltip, ui.OptionsWithTimezones {
    alignValue?: ui.TimelineValueAlignment;
    mergeValues?: boolean;
    perPage?: number;
    rowHeight: number;
    showValue: ui.VisibilityMode;
}
export interface FieldConfig extends ui.AxisConfig, ui.HideableFieldConfig {
    fillOpacity?: number;
    lineWidth?: number;
}
