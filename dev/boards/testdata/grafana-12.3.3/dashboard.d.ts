export interface AnnotationTarget {
    limit: number;
    matchAny: boolean;
    tags: Array<string>;
    type: string;
}
export interface AnnotationPanelFilter {
    exclude?: boolean;
    ids: Array<number>;
}
export interface AnnotationContainer {
    list?: Array<AnnotationQuery>;
}
export interface AnnotationQuery {
    builtIn?: number;
    datasource: DataSourceRef;
    enable: boolean;
    filter?: AnnotationPanelFilter;
    hide?: boolean;
    iconColor: string;
    name: string;
    placement?: AnnotationQueryPlacement;
    target?: AnnotationTarget;
    type?: string;
}
export interface VariableModel {
    allValue?: string;
    allowCustomValue?: boolean;
    current?: VariableOption;
    datasource?: DataSourceRef;
    description?: string;
    hide?: VariableHide;
    includeAll?: boolean;
    label?: string;
    multi?: boolean;
    name: string;
    options?: Array<VariableOption>;
    query?: (string | Record<string, unknown>);
    refresh?: VariableRefresh;
    regex?: string;
    skipUrlSync?: boolean;
    sort?: VariableSort;
    staticOptions?: Array<VariableOption>;
    staticOptionsOrder?: ('before' | 'after' | 'sorted');
    type: VariableType;
}
export interface VariableOption {
    selected?: boolean;
    text: (string | Array<string>);
    value: (string | Array<string>);
}
export declare enum VariableRefresh {
    never = 0,
    onDashboardLoad = 1,
    onTimeRangeChanged = 2
}
export declare enum VariableHide {
    dontHide = 0,
    hideLabel = 1,
    hideVariable = 2,
    inControlsMenu = 3
}
export declare enum VariableSort {
    alphabeticalAsc = 1,
    alphabeticalCaseInsensitiveAsc = 5,
    alphabeticalCaseInsensitiveDesc = 6,
    alphabeticalDesc = 2,
    disabled = 0,
    naturalAsc = 7,
    naturalDesc = 8,
    numericalAsc = 3,
    numericalDesc = 4
}
export interface DataSourceRef {
    type?: string;
    uid?: string;
}
export interface DashboardLink {
    asDropdown: boolean;
    icon: string;
    includeVars: boolean;
    keepTime: boolean;
    placement?: DashboardLinkPlacement;
    tags: Array<string>;
    targetBlank: boolean;
    title: string;
    tooltip: string;
    type: DashboardLinkType;
    url?: string;
}
export type DashboardLinkType = ('link' | 'dashboards');
export type DashboardLinkPlacement = 'inControlsMenu';
export type AnnotationQueryPlacement = 'inControlsMenu';
export type ActionType = ('fetch' | 'infinity');
export interface FetchOptions {
    body?: string;
    headers?: Array<Array<string>>;
    method: HttpRequestMethod;
    queryParams?: Array<Array<string>>;
    url: string;
}
export interface InfinityOptions {
    body?: string;
    datasourceUid: string;
    headers?: Array<Array<string>>;
    method: HttpRequestMethod;
    queryParams?: Array<Array<string>>;
    url: string;
}
export type HttpRequestMethod = ('GET' | 'PUT' | 'POST' | 'DELETE' | 'PATCH');
export type ActionVariableType = 'string';
export interface ActionVariable {
    key: string;
    name: string;
    type: ActionVariableType;
}
export interface Action {
    confirmation?: string;
    fetch?: FetchOptions;
    infinity?: InfinityOptions;
    oneClick?: boolean;
    style?: {
        backgroundColor?: string;
    };
    title: string;
    type: ActionType;
    variables?: Array<ActionVariable>;
}
export type VariableType = ('query' | 'adhoc' | 'groupby' | 'constant' | 'datasource' | 'interval' | 'textbox' | 'custom' | 'system' | 'snapshot' | 'switch');
export declare enum FieldColorModeId {
    ContinuousBlPu = "continuous-BlPu",
    ContinuousBlYlRd = "continuous-BlYlRd",
    ContinuousBlues = "continuous-blues",
    ContinuousGrYlRd = "continuous-GrYlRd",
    ContinuousGreens = "continuous-greens",
    ContinuousPurples = "continuous-purples",
    ContinuousRdYlGr = "continuous-RdYlGr",
    ContinuousReds = "continuous-reds",
    ContinuousYlBl = "continuous-YlBl",
    ContinuousYlRd = "continuous-YlRd",
    Fixed = "fixed",
    PaletteClassic = "palette-classic",
    PaletteClassicByName = "palette-classic-by-name",
    Shades = "shades",
    Thresholds = "thresholds"
}
export type FieldColorSeriesByMode = ('min' | 'max' | 'last');
export interface FieldColor {
    fixedColor?: string;
    mode: FieldColorModeId;
    seriesBy?: FieldColorSeriesByMode;
}
export interface GridPos {
    h: number;
    static?: boolean;
    w: number;
    x: number;
    y: number;
}
export interface Threshold {
    color: string;
    value: (number | null);
}
export declare enum ThresholdsMode {
    Absolute = "absolute",
    Percentage = "percentage"
}
export interface ThresholdsConfig {
    mode: ThresholdsMode;
    steps: Array<Threshold>;
}
export type ValueMapping = (ValueMap | RangeMap | RegexMap | SpecialValueMap);
export declare enum MappingType {
    RangeToText = "range",
    RegexToText = "regex",
    SpecialValue = "special",
    ValueToText = "value"
}
export interface ValueMap {
    options: Record<string, ValueMappingResult>;
    type: MappingType.ValueToText;
}
export interface RangeMap {
    options: {
        from: (number | null);
        to: (number | null);
        result: ValueMappingResult;
    };
    type: MappingType.RangeToText;
}
export interface RegexMap {
    options: {
        pattern: string;
        result: ValueMappingResult;
    };
    type: MappingType.RegexToText;
}
export interface SpecialValueMap {
    options: {
        match: SpecialValueMatch;
        result: ValueMappingResult;
    };
    type: MappingType.SpecialValue;
}
export declare enum SpecialValueMatch {
    Empty = "empty",
    False = "false",
    NaN = "nan",
    Null = "null",
    NullAndNan = "null+nan",
    True = "true"
}
export interface ValueMappingResult {
    color?: string;
    icon?: string;
    index?: number;
    text?: string;
}
export interface DataTransformerConfig {
    disabled?: boolean;
    filter?: MatcherConfig;
    id: string;
    options: unknown;
    topic?: ('series' | 'annotations' | 'alertStates');
}
export interface TimeOption {
    display: string;
    from: string;
    to: string;
}
export interface TimePickerConfig {
    hidden?: boolean;
    nowDelay?: string;
    quick_ranges?: Array<TimeOption>;
    refresh_intervals?: Array<string>;
}
export declare enum DashboardCursorSync {
    Crosshair = 1,
    Off = 0,
    Tooltip = 2
}
export interface Panel {
    cacheTimeout?: string;
    datasource?: DataSourceRef;
    description?: string;
    fieldConfig?: FieldConfigSource;
    gridPos?: GridPos;
    hideTimeOverride?: boolean;
    id?: number;
    interval?: string;
    libraryPanel?: LibraryPanelRef;
    links?: Array<DashboardLink>;
    maxDataPoints?: number;
    maxPerRow?: number;
    options?: Record<string, unknown>;
    pluginVersion?: string;
    queryCachingTTL?: number;
    repeat?: string;
    repeatDirection?: ('h' | 'v');
    targets?: Array<Record<string, unknown>>;
    timeCompare?: string;
    timeFrom?: string;
    timeShift?: string;
    title?: string;
    transformations?: Array<DataTransformerConfig>;
    transparent?: boolean;
    type: string;
}
export interface FieldConfigSource {
    defaults: FieldConfig;
    overrides: Array<{
        matcher: MatcherConfig;
        properties: Array<{
            id: string;
            value?: unknown;
        }>;
    }>;
}
export interface LibraryPanelRef {
    name: string;
    uid: string;
}
export interface MatcherConfig {
    id: string;
    options?: unknown;
}
export interface FieldConfig {
    actions?: Array<Action>;
    color?: FieldColor;
    custom?: Record<string, unknown>;
    decimals?: number;
    description?: string;
    displayName?: string;
    displayNameFromDS?: string;
    filterable?: boolean;
    links?: Array<unknown>;
    mappings?: Array<ValueMapping>;
    max?: number;
    min?: number;
    noValue?: string;
    path?: string;
    thresholds?: ThresholdsConfig;
    unit?: string;
    writeable?: boolean;
}
export interface RowPanel {
    collapsed: boolean;
    datasource?: DataSourceRef;
    gridPos?: GridPos;
    id: number;
    panels: Array<Panel>;
    repeat?: string;
    title?: string;
    type: 'row';
}
export interface Dashboard {
    annotations?: AnnotationContainer;
    description?: string;
    editable?: boolean;
    fiscalYearStartMonth?: number;
    gnetId?: string;
    graphTooltip?: DashboardCursorSync;
    id?: (number | null);
    links?: Array<DashboardLink>;
    liveNow?: boolean;
    panels?: Array<(Panel | RowPanel)>;
    preload?: boolean;
    refresh?: string;
    revision?: number;
    schemaVersion: number;
    snapshot?: {
        created: string;
        expires: string;
        external: boolean;
        externalUrl: string;
        originalUrl: string;
        id: number;
        key: string;
        name: string;
        orgId: number;
        updated: string;
        url?: string;
        userId: number;
    };
    tags?: Array<string>;
    templating?: {
        list?: Array<VariableModel>;
    };
    time?: {
        from: string;
        to: string;
    };
    timepicker?: TimePickerConfig;
    timezone?: string;
    title?: string;
    uid?: string;
    version?: number;
    weekStart?: string;
}
