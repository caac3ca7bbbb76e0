export declare enum HeatmapColorMode {
    Opacity = "opacity",
    Scheme = "scheme"
}
export declare enum HeatmapColorScale {
    Exponential = "exponential",
    Linear = "linear"
}
export declare enum HeatmapSelectionMode {
    X = "x",
    Xy = "xy",
    Y = "y"
}
export interface HeatmapColorOptions {
    exponent: number;
    fill: string;
    max?: number;
    min?: number;
    mode?: HeatmapColorMode;
    reverse: boolean;
    scale?: HeatmapColorScale;
    scheme: string;
    steps: number;
}
export interface YAxisConfig extends ui.AxisConfig {
    decimals?: number;
    max?: number;
    min?: number;
    reverse?: boolean;
    unit?: string;
}
export interface CellValues {
    decimals?: number;
    unit?: string;
}
export interface FilterValueRange {
    ge?: number;
    le?: number;
}
export interface HeatmapTooltip {
    maxHeight?: number;
    maxWidth?: number;
    mode: ui.TooltipDisplayMode;
    showColorScale?: boolean;
    yHistogram?: boolean;
}
export interface HeatmapLegend {
    show: boolean;
}
export interface ExemplarConfig {
    color: string;
}
export interface RowsHeatmapOptions {
    layout?: ui.HeatmapCellLayout;
    value?: string;
}
export interface Options {
    calculate?: boolean;
    calculation?: ui.HeatmapCalculationOptions;
    cellGap?: number;
    cellRadius?: number;
    cellValues?: CellValues;
    color: HeatmapColorOptions;
    exemplars: ExemplarConfig;
    filterValues?: FilterValueRange;
    legend: HeatmapLegend;
    rowsFrame?: RowsHeatmapOptions;
    selectionMode?: HeatmapSelectionMode;
    showValue: ui.VisibilityMode;
    tooltip: HeatmapTooltip;
    yAxis: YAxisConfig;
}
export interface FieldConfig extends ui.HideableFieldConfig {
    scaleDistribution?: ui.ScaleDistributionConfig;
}
