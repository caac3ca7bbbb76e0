export interface Options extends common.OptionsWithTimezones {
    legend: common.VizLegendOptions;
    orientation?: common.VizOrientation;
    timeCompare?: common.TimeCompareOptions;
    tooltip: common.VizTooltipOptions;
}
export interface FieldConfig extends common.GraphFieldConfig {
}
