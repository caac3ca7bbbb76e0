export declare enum DataTopic {
    AlertStates = "alertStates",
    Annotations = "annotations",
    Series = "series"
}
export interface DataSourceJsonData {
    alertmanagerUid?: string;
    authType?: string;
    defaultRegion?: string;
    manageAlerts?: boolean;
    profile?: string;
}
export interface DataQuery {
    datasource?: unknown;
    hide?: boolean;
    queryType?: string;
    refId: string;
}
export interface BaseDimensionConfig {
    field?: string;
}
export declare enum ScaleDimensionMode {
    Linear = "linear",
    Quad = "quad"
}
export interface ScaleDimensionConfig extends BaseDimensionConfig {
    fixed?: number;
    max: number;
    min: number;
    mode?: ScaleDimensionMode;
}
export interface ColorDimensionConfig extends BaseDimensionConfig {
    fixed?: string;
}
export declare enum ScalarDimensionMode {
    Clamped = "clamped",
    Mod = "mod"
}
export interface ScalarDimensionConfig extends BaseDimensionConfig {
    fixed?: number;
    max: number;
    min: number;
    mode?: ScalarDimensionMode;
}
export declare enum TextDimensionMode {
    Field = "field",
    Fixed = "fixed",
    Template = "template"
}
export interface TextDimensionConfig extends BaseDimensionConfig {
    fixed?: string;
    mode: TextDimensionMode;
}
export declare enum ResourceDimensionMode {
    Field = "field",
    Fixed = "fixed",
    Mapping = "mapping"
}
export interface ResourceDimensionConfig extends BaseDimensionConfig {
    fixed?: string;
    mode: ResourceDimensionMode;
}
export declare enum ConnectionDirection {
    Both = "both",
    Forward = "forward",
    None = "none",
    Reverse = "reverse"
}
export declare enum DirectionDimensionMode {
    Field = "field",
    Fixed = "fixed"
}
export interface MapLayerOptions {
    config?: unknown;
    filterData?: unknown;
    location?: FrameGeometrySource;
    name: string;
    opacity?: number;
    tooltip?: boolean;
    type: string;
}
export declare enum FrameGeometrySourceMode {
    Auto = "auto",
    Coords = "coords",
    Geohash = "geohash",
    Lookup = "lookup"
}
export declare enum HeatmapCalculationMode {
    Count = "count",
    Size = "size"
}
export declare enum HeatmapCellLayout {
    auto = "auto",
    ge = "ge",
    le = "le",
    unknown = "unknown"
}
export interface HeatmapCalculationBucketConfig {
    mode?: HeatmapCalculationMode;
    scale?: ScaleDistributionConfig;
    value?: string;
}
export declare enum LogsSortOrder {
    Ascending = "Ascending",
    Descending = "Descending"
}
export declare enum AxisPlacement {
    Auto = "auto",
    Bottom = "bottom",
    Hidden = "hidden",
    Left = "left",
    Right = "right",
    Top = "top"
}
export declare enum AxisColorMode {
    Series = "series",
    Text = "text"
}
export declare enum VisibilityMode {
    Always = "always",
    Auto = "auto",
    Never = "never"
}
export declare enum GraphDrawStyle {
    Bars = "bars",
    Line = "line",
    Points = "points"
}
export declare enum GraphTransform {
    Constant = "constant",
    NegativeY = "negative-Y"
}
export declare enum LineInterpolation {
    Linear = "linear",
    Smooth = "smooth",
    StepAfter = "stepAfter",
    StepBefore = "stepBefore"
}
export declare enum ScaleDistribution {
    Linear = "linear",
    Log = "log",
    Ordinal = "ordinal",
    Symlog = "symlog"
}
export declare enum GraphGradientMode {
    Hue = "hue",
    None = "none",
    Opacity = "opacity",
    Scheme = "scheme"
}
export declare enum StackingMode {
    None = "none",
    Normal = "normal",
    Percent = "percent"
}
export declare enum BarAlignment {
    After = 1,
    Before = -1,
    Center = 0
}
export declare enum ScaleOrientation {
    Horizontal = 0,
    Vertical = 1
}
export declare enum ScaleDirection {
    Down = -1,
    Left = -1,
    Right = 1,
    Up = 1
}
export interface LineStyle {
    dash?: Array<number>;
    fill?: ('solid' | 'dash' | 'dot' | 'square');
}
export interface LineConfig {
    lineColor?: string;
    lineInterpolation?: LineInterpolation;
    lineStyle?: LineStyle;
    lineWidth?: number;
    spanNulls?: (boolean | number);
}
export interface BarConfig {
    barAlignment?: BarAlignment;
    barMaxWidth?: number;
    barWidthFactor?: number;
}
export interface FillConfig {
    fillBelowTo?: string;
    fillColor?: string;
    fillOpacity?: number;
}
export interface PointsConfig {
    pointColor?: string;
    pointSize?: number;
    pointSymbol?: string;
    showPoints?: VisibilityMode;
}
export interface ScaleDistributionConfig {
    linearThreshold?: number;
    log?: number;
    type: ScaleDistribution;
}
export interface AxisConfig {
    axisBorderShow?: boolean;
    axisCenteredZero?: boolean;
    axisColorMode?: AxisColorMode;
    axisGridShow?: boolean;
    axisLabel?: string;
    axisPlacement?: AxisPlacement;
    axisSoftMax?: number;
    axisSoftMin?: number;
    axisWidth?: number;
    scaleDistribution?: ScaleDistributionConfig;
}
export interface HideSeriesConfig {
    legend: boolean;
    tooltip: boolean;
    viz: boolean;
}
export interface StackingConfig {
    group?: string;
    mode?: StackingMode;
}
export interface StackableFieldConfig {
    stacking?: StackingConfig;
}
export interface HideableFieldConfig {
    hideFrom?: HideSeriesConfig;
}
export declare enum GraphThresholdsStyleMode {
    Area = "area",
    Dashed = "dashed",
    DashedAndArea = "dashed+area",
    Line = "line",
    LineAndArea = "line+area",
    Off = "off",
    Series = "series"
}
export interface GraphThresholdsStyleConfig {
    mode: GraphThresholdsStyleMode;
}
export type LegendPlacement = ('bottom' | 'right');
export declare enum LegendDisplayMode {
    Hidden = "hidden",
    List = "list",
    Table = "table"
}
export interface SingleStatBaseOptions extends OptionsWithTextFormatting {
    orientation: VizOrientation;
    reduceOptions: ReduceDataOptions;
}
export interface ReduceDataOptions {
    calcs: Array<string>;
    fields?: string;
    limit?: number;
    values?: boolean;
}
export declare enum VizOrientation {
    Auto = "auto",
    Horizontal = "horizontal",
    Vertical = "vertical"
}
export interface OptionsWithTooltip {
    tooltip: VizTooltipOptions;
}
export interface OptionsWithLegend {
    legend: VizLegendOptions;
}
export interface OptionsWithTimezones {
    timezone?: Array<TimeZone>;
}
export interface OptionsWithTextFormatting {
    text?: VizTextDisplayOptions;
}
export declare enum BigValueColorMode {
    Background = "background",
    BackgroundSolid = "background_solid",
    None = "none",
    Value = "value"
}
export declare enum BigValueGraphMode {
    Area = "area",
    Line = "line",
    None = "none"
}
export declare enum BigValueJustifyMode {
    Auto = "auto",
    Center = "center"
}
export declare enum BigValueTextMode {
    Auto = "auto",
    Name = "name",
    None = "none",
    Value = "value",
    ValueAndName = "value_and_name"
}
export declare enum PercentChangeColorMode {
    Inverted = "inverted",
    SameAsValue = "same_as_value",
    Standard = "standard"
}
export type FieldTextAlignment = ('auto' | 'left' | 'right' | 'center');
export type TimelineValueAlignment = ('center' | 'left' | 'right');
export interface VizTextDisplayOptions {
    percentSize?: number;
    titleSize?: number;
    valueSize?: number;
}
export declare enum TooltipDisplayMode {
    Multi = "multi",
    None = "none",
    Single = "single"
}
export declare enum SortOrder {
    Ascending = "asc",
    Descending = "desc",
    None = "none"
}
export interface GraphFieldConfig extends LineConfig, FillConfig, PointsConfig, AxisConfig, BarConfig, StackableFieldConfig, HideableFieldConfig {
    drawStyle?: GraphDrawStyle;
    gradientMode?: GraphGradientMode;
    insertNulls?: (boolean | number);
    showValues?: boolean;
    thresholdsStyle?: GraphThresholdsStyleConfig;
    transform?: GraphTransform;
}
export interface VizLegendOptions {
    asTable?: boolean;
    calcs: Array<string>;
    displayMode: LegendDisplayMode;
    isVisible?: boolean;
    placement: LegendPlacement;
    showLegend: boolean;
    sortBy?: string;
    sortDesc?: boolean;
    width?: number;
}
export declare enum BarGaugeDisplayMode {
    Basic = "basic",
    Gradient = "gradient",
    Lcd = "lcd"
}
export declare enum BarGaugeValueMode {
    Color = "color",
    Hidden = "hidden",
    Text = "text"
}
export declare enum BarGaugeNamePlacement {
    Auto = "auto",
    Hidden = "hidden",
    Left = "left",
    Top = "top"
}
export declare enum BarGaugeSizing {
    Auto = "auto",
    Manual = "manual"
}
export interface VizTooltipOptions {
    hideZeros?: boolean;
    maxHeight?: number;
    maxWidth?: number;
    mode: TooltipDisplayMode;
    sort: SortOrder;
}
export interface Labels {
}
export declare enum TableCellDisplayMode {
    Actions = "actions",
    Auto = "auto",
    BasicGauge = "basic",
    ColorBackground = "color-background",
    ColorBackgroundSolid = "color-background-solid",
    ColorText = "color-text",
    Custom = "custom",
    DataLinks = "data-links",
    Gauge = "gauge",
    Geo = "geo",
    GradientGauge = "gradient-gauge",
    Image = "image",
    JSONView = "json-view",
    LcdGauge = "lcd-gauge",
    Markdown = "markdown",
    Pill = "pill",
    Sparkline = "sparkline"
}
export declare enum TableCellBackgroundDisplayMode {
    Basic = "basic",
    Gradient = "gradient"
}
export interface TableSortByFieldState {
    desc?: boolean;
    displayName: string;
}
export interface TableAutoCellOptions {
    type: TableCellDisplayMode.Auto;
}
export interface TableColorTextCellOptions {
    type: TableCellDisplayMode.ColorText;
}
export interface TableJsonViewCellOptions {
    type: TableCellDisplayMode.JSONView;
}
export interface TableImageCellOptions {
    alt?: string;
    title?: string;
    type: TableCellDisplayMode.Image;
}
export interface TableDataLinksCellOptions {
    type: TableCellDisplayMode.DataLinks;
}
export interface TableActionsCellOptions {
    type: TableCellDisplayMode.Actions;
}
export interface TableBarGaugeCellOptions {
    mode?: BarGaugeDisplayMode;
    type: TableCellDisplayMode.Gauge;
    valueDisplayMode?: BarGaugeValueMode;
}
export interface TableSparklineCellOptions extends GraphFieldConfig {
    hideValue?: boolean;
    type: TableCellDisplayMode.Sparkline;
}
export interface TableColoredBackgroundCellOptions {
    applyToRow?: boolean;
    mode?: TableCellBackgroundDisplayMode;
    type: TableCellDisplayMode.ColorBackground;
}
export interface TablePillCellOptions {
    type: TableCellDisplayMode.Pill;
}
export type TimeZoneUtc = 'utc';
export type TimeZoneBrowser = 'browser';
export interface TimeCompareOptions {
    timeCompare?: boolean;
}
export declare enum VariableFormatID {
    CSV = "csv",
    CustomQueryParam = "customqueryparam",
    Date = "date",
    Distributed = "distributed",
    DoubleQuote = "doublequote",
    Glob = "glob",
    HTML = "html",
    JSON = "json",
    Join = "join",
    Lucene = "lucene",
    PercentEncode = "percentencode",
    Pipe = "pipe",
    QueryParam = "queryparam",
    Raw = "raw",
    Regex = "regex",
    SQLString = "sqlstring",
    SingleQuote = "singlequote",
    Text = "text",
    UriEncode = "uriencode"
}
export interface DataSourceRef {
    apiVersion?: string;
    type?: string;
    uid?: string;
}
export interface DirectionDimensionConfig extends BaseDimensionConfig {
    fixed?: ConnectionDirection;
    mode: DirectionDimensionMode;
}
export interface FrameGeometrySource {
    gazetteer?: string;
    geohash?: string;
    latitude?: string;
    longitude?: string;
    lookup?: string;
    mode: FrameGeometrySourceMode;
    wkt?: string;
}
export interface HeatmapCalculationOptions {
    xBuckets?: HeatmapCalculationBucketConfig;
    yBuckets?: HeatmapCalculationBucketConfig;
}
export declare enum LogsDedupStrategy {
    exact = "exact",
    none = "none",
    numbers = "numbers",
    signature = "signature"
}
export declare enum ComparisonOperation {
    EQ = "eq",
    GT = "gt",
    GTE = "gte",
    LT = "lt",
    LTE = "lte",
    NEQ = "neq"
}
export interface TableMarkdownCellOptions {
    dynamicHeight?: boolean;
    type: TableCellDisplayMode.Markdown;
}
export declare enum TableCellHeight {
    Auto = "auto",
    Lg = "lg",
    Md = "md",
    Sm = "sm"
}
export type TableCellOptions = (TableAutoCellOptions | TableSparklineCellOptions | TableBarGaugeCellOptions | TableColoredBackgroundCellOptions | TableColorTextCellOptions | TableImageCellOptions | TablePillCellOptions | TableDataLinksCellOptions | TableActionsCellOptions | TableJsonViewCellOptions | TableMarkdownCellOptions | {
    type: TableCellDisplayMode.Geo;
});
export declare enum TableCellTooltipPlacement {
    Auto = "auto",
    Bottom = "bottom",
    Left = "left",
    Right = "right",
    Top = "top"
}
export interface TableFooterOptions {
    reducers?: Array<string>;
}
export interface TableFieldOptions extends HideableFieldConfig {
    align: FieldTextAlignment;
    cellOptions: TableCellOptions;
    displayMode?: TableCellDisplayMode;
    filterable?: boolean;
    footer?: TableFooterOptions;
    hideHeader?: boolean;
    inspect: boolean;
    minWidth?: number;
    styleField?: string;
    tooltip?: {
        field: string;
        placement?: TableCellTooltipPlacement;
    };
    width?: number;
    wrapHeaderText?: boolean;
    wrapText?: boolean;
}
export type TimeZone = (TimeZoneUtc | TimeZoneBrowser | string);
