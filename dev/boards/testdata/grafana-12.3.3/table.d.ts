export interface Options {
    cellHeight?: ui.TableCellHeight;
    enablePagination?: boolean;
    frameIndex: number;
    frozenColumns?: {
        left?: number;
    };
    maxRowHeight?: number;
    showHeader: boolean;
    showTypeIcons?: boolean;
    sortBy?: Array<ui.TableSortByFieldState>;
}
export interface FieldConfig extends ui.TableFieldOptions {
}
